// Keeps the table alive: fetched again every two seconds while the page is seen and nobody is about to press a button in it.
'use strict';

const table = document.getElementById('table');
const stale = document.getElementById('stale');
const EVERY_MS = 2000;

async function refresh() {
  if (document.hidden || table.contains(document.activeElement)) {
    return;
  }
  try {
    const answer = await fetch(document.body.dataset.table, {
      credentials: 'same-origin',
      headers: { 'X-XSRFToken': document.body.dataset.xsrf },
      redirect: 'error'
    });
    if (!answer.ok) {
      throw new Error(`the service answered ${answer.status}`);
    }
    const text = await answer.text();
    if (!table.contains(document.activeElement)) {
      table.innerHTML = text;
    }
    stale.textContent = '';
  } catch (error) {
    stale.textContent = `Not up to date: ${error.message}. Load the page again.`;
  }
}

setInterval(refresh, EVERY_MS);
document.addEventListener('visibilitychange', refresh);
