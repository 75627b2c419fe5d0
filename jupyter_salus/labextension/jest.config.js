// Unit tests of what needs no page: wire, format, store, feed, history. The page itself is tested in tests/ui.
const esModules = ['@jupyterlab/translation', '@jupyterlab/coreutils', '@jupyterlab/rendermime-interfaces'].join('|');

module.exports = {
  testEnvironment: 'node',
  roots: ['<rootDir>/tests'],
  transform: { '^.+\\.[tj]sx?$': ['ts-jest', { tsconfig: 'tsconfig.test.json' }] },
  transformIgnorePatterns: [`/node_modules/(?!(${esModules})/)`],
  modulePathIgnorePatterns: ['<rootDir>/dist', '<rootDir>/lib']
};
