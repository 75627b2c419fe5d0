/**
 * A part of the panel that can be folded away.
 */
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

interface ISectionProps {
  readonly id: string;
  readonly title: string;
  /** More of the title, cut where there is no room. */
  readonly detail?: string;
  /** Shown beside the title, also while folded. */
  readonly aside?: string;
  readonly initiallyOpen?: boolean;
  readonly onFirstOpen?: () => void;
  readonly children: React.ReactNode;
}

export function Section(props: ISectionProps): JSX.Element {
  const { id, title, detail, aside, initiallyOpen = true, onFirstOpen, children } = props;
  const [open, setOpen] = React.useState(initiallyOpen);
  const opened = React.useRef(false);
  React.useEffect(() => {
    if (open && !opened.current) {
      opened.current = true;
      onFirstOpen?.();
    }
  }, [open, onFirstOpen]);
  const body = `jp-Salus-${id}`;
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <section className="jp-Salus-section" data-section={id}>
      <h2 className="jp-Salus-sectionTitle">
        <button type="button" aria-expanded={open} aria-controls={body} onClick={() => setOpen(!open)}>
          <Caret.react tag="span" className="jp-Salus-caret" />
          <span className="jp-Salus-ellipsis" title={detail ? `${title} ${detail}` : title}>
            {title}
            {detail ? <span className="jp-Salus-aside"> {detail}</span> : null}
          </span>
          {aside ? <span className="jp-Salus-aside jp-Salus-figure">{aside}</span> : null}
        </button>
      </h2>
      <div id={body} className="jp-Salus-sectionBody" hidden={!open}>
        {open ? children : null}
      </div>
    </section>
  );
}
