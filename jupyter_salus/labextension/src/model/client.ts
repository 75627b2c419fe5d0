/**
 * The server extension's REST interface. All requests go through `ServerConnection`, which adds the token and the
 * XSRF header that a hub asks for even on GET.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { readRefusal } from '../wire';

/** What came of a request; `code` is null where the error isn't one of ours. */
export type Answer =
  | { readonly kind: 'body'; readonly body: unknown; readonly etag: string | null; readonly date: string | null }
  | { readonly kind: 'unchanged' }
  | { readonly kind: 'refused'; readonly status: number; readonly code: string | null; readonly message: string }
  | { readonly kind: 'unreachable'; readonly message: string };

export type Verb = 'yield' | 'evict' | 'restore';

export class Client {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  state(etag: string | null): Promise<Answer> {
    return this._request('state', { method: 'GET', headers: etag ? { 'If-None-Match': etag } : {} });
  }

  history(since: number): Promise<Answer> {
    return this._request(`history?since=${since}`, { method: 'GET' });
  }

  changeSession(id: string, change: { priority?: string; pinned?: boolean }): Promise<Answer> {
    return this._request(`sessions/${encodeURIComponent(id)}`, { method: 'PATCH', body: JSON.stringify(change) });
  }

  act(id: string, verb: Verb): Promise<Answer> {
    return this._request(`sessions/${encodeURIComponent(id)}/${verb}`, { method: 'POST' });
  }

  changeDevice(id: string, policy: string): Promise<Answer> {
    return this._request(`devices/${encodeURIComponent(id)}`, { method: 'PATCH', body: JSON.stringify({ policy }) });
  }

  private async _request(path: string, init: RequestInit): Promise<Answer> {
    const url = URLExt.join(this._settings.baseUrl, 'salus/api') + '/' + path;
    let response: Response;
    try {
      // 'no-store': the browser's own cache would answer our If-None-Match for us and hide the 304.
      response = await ServerConnection.makeRequest(url, { cache: 'no-store', ...init }, this._settings);
    } catch (error) {
      return { kind: 'unreachable', message: error instanceof Error ? error.message : String(error) };
    }
    if (response.status === 304) {
      return { kind: 'unchanged' };
    }
    let body: unknown = null;
    try {
      const text = await response.text();
      body = text ? JSON.parse(text) : null;
    } catch (error) {
      if (response.ok) {
        return { kind: 'refused', status: response.status, code: null, message: `cannot read the answer of ${url}` };
      }
    }
    if (response.ok) {
      return { kind: 'body', body, etag: response.headers.get('ETag'), date: response.headers.get('Date') };
    }
    const refusal = readRefusal(body);
    return {
      kind: 'refused',
      status: response.status,
      code: refusal?.code ?? null,
      message: refusal?.message ?? `${response.status} ${response.statusText}`
    };
  }
}
