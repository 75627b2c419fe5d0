/**
 * What is wrong, and what the person can do about it.
 */
import { Button } from '@jupyterlab/ui-components';
import * as React from 'react';
import { duration } from '../format';
import { Link } from '../model/feed';
import { TranslationBundle } from '@jupyterlab/translation';
import { stateIcon } from '../icons';
import { useNow, useSignal, useSurroundings } from './context';

export const LAB_LINE = 'jupyter lab --ServerApp.kernel_manager_class=jupyter_salus.Manager';
const ENABLE_LINE = 'jupyter server extension enable jupyter_salus';
const DOCTOR_LINE = 'jupyter salus doctor';

interface IAdvice {
  readonly title: string;
  /** What to do. */
  readonly text: string;
  /** A line to type. */
  readonly line?: string;
  /** The words of the server. */
  readonly detail?: string;
}

function adviceFor(link: Link, trans: TranslationBundle): IAdvice | null {
  switch (link.kind) {
    case 'starting':
    case 'live':
      return null;
    case 'no_backend':
      return {
        title: trans.__('No backend answers'),
        text: trans.__(
          'Nobody decides about the GPU now; notebooks go on without turns. A server with the Manager starts a backend again by itself within seconds. If it doesn’t come back, ask what is wrong in a terminal:'
        ),
        line: DOCTOR_LINE,
        detail: link.message
      };
    case 'not_authorised':
      return {
        title: trans.__('Not authorised'),
        text: trans.__(
          'This server doesn’t let you see who has the GPU. Log in again, or ask who runs the server for access.'
        )
      };
    case 'no_server_part':
      return {
        title: trans.__('The server part is missing'),
        text: trans.__(
          'This sidebar is installed, its server extension isn’t enabled. Type this where the server runs, then start the server again:'
        ),
        line: ENABLE_LINE
      };
    case 'unreachable':
      return {
        title: trans.__('The server can’t be reached'),
        text: trans.__('Check the connection. The sidebar goes on by itself once the server answers.'),
        detail: link.message
      };
    case 'unfit':
      return {
        title: trans.__('Sidebar and server don’t fit'),
        text: trans.__(
          'The two parts are of different versions. Reload the page; if that doesn’t help, start the server again.'
        ),
        detail: link.message
      };
    case 'failed':
      return {
        title: trans.__('The server reports an error'),
        text: trans.__('The sidebar asks again by itself. The server’s log says more.'),
        detail: link.message
      };
  }
}

function Notice(props: IAdvice & { readonly onRetry?: () => void; readonly stale?: string }): JSX.Element {
  const { trans } = useSurroundings();
  const { title, text, line, detail, stale, onRetry } = props;
  const BrokenIcon = stateIcon('broken');
  return (
    <div className="jp-Salus-notice" role="status">
      <h3>
        <BrokenIcon.react tag="span" className="jp-Salus-icon" />
        {title}
      </h3>
      <p>{text}</p>
      {line ? (
        <pre className="jp-Salus-line" tabIndex={0} aria-label={trans.__('Line to type')}>
          {line}
        </pre>
      ) : null}
      {detail ? <p className="jp-Salus-detail">{detail}</p> : null}
      {stale ? <p className="jp-Salus-stale">{stale}</p> : null}
      {onRetry ? (
        <Button className="jp-mod-styled jp-Salus-retry" minimal={false} onClick={onRetry}>
          {trans.__('Retry now')}
        </Button>
      ) : null}
    </div>
  );
}

/** The fault of the connection, if there is one. */
export function Faults(): JSX.Element | null {
  const { model, trans } = useSurroundings();
  useSignal(model.feed.linkChanged);
  const { link, freshAt } = model.feed;
  const advice = adviceFor(link, trans);
  useNow(advice !== null && freshAt !== null);
  if (!advice) {
    return null;
  }
  const stale =
    freshAt === null ? undefined : trans.__('What is shown below was true %1 ago.', duration(Date.now() / 1000 - freshAt, trans));
  return <Notice {...advice} {...(stale ? { stale } : {})} onRetry={() => model.feed.refresh()} />;
}

/** This server's kernels run without us. */
export function Unmanaged(props: { readonly count: number }): JSX.Element {
  const { trans } = useSurroundings();
  return (
    <Notice
      title={trans._n('%1 kernel isn’t managed', '%1 kernels aren’t managed', props.count)}
      text={trans.__(
        'This server’s kernels use the GPU without turns. Start the server with this line, and restart the kernels:'
      )}
      line={LAB_LINE}
    />
  );
}
