// SPDX-License-Identifier: Apache-2.0
// Fills the live page. What comes from a server is only ever text: it goes into the document by textContent.
'use strict';

const EVERY_MS = 2000, HISTORY_MS = 5000, PATIENCE_MS = 6000, HOUR_S = 3600;
const SVG = 'http://www.w3.org/2000/svg';
const find = id => document.getElementById(id);

let token = '';           // of who has logged in; in this page's memory only
let report = null;        // the newest
let before = new Map();   // sessions of the report before it: counters and its moment
let rates = new Map();    // of each session, by its number
let sorted = {column: 'id', down: false};
let asked = null;         // the session that somebody is about to end
const past = {at_s: [], columns: new Map(), every_s: 5};

// ---- making parts of the document ----

function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  if (text !== undefined) {
    element.textContent = text;
  }
  return element;
}

function say(element, text) {
  if (element.textContent !== text) { // so that nobody is read the same again
    element.textContent = text;
  }
}

// ---- numbers for people ----

const number = value => (Number.isFinite(value) ? value : 0);

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  value = number(value);
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function count(value) {
  value = number(value);
  return value >= 1e6 ? `${(value / 1e6).toFixed(1)} M` : value >= 1e4 ? `${(value / 1e3).toFixed(1)} k` : `${Math.round(value * 10) / 10}`;
}

function age(seconds) {
  seconds = number(seconds);
  return seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min`
    : seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

const many = (value, one) => `${value} ${one}${value === 1 ? '' : 's'}`;
const list = value => (Array.isArray(value) ? value : []);

// ---- the report ----

// What NVIDIA's management library says of a GPU, if there is one.
function gaugesOf(gpu) {
  return list(report.gauges && report.gauges.devices).find(gauges => gauges.uuid === gpu.uuid) || {};
}

// As `towline status` counts: that library's word, else what all sessions hold.
function usedOf(gpu, nth) {
  const gauges = gaugesOf(gpu);
  if (Number.isFinite(gauges.memory_used)) {
    return gauges.memory_used;
  }
  let used = number(list(report.others && report.others.used)[nth]);
  for (const session of list(report.sessions)) {
    used += Array.isArray(session.used) ? number(session.used[nth]) : session.gpu === nth ? number(session.memory) : 0;
  }
  return Math.min(Math.max(used, 0), number(gpu.memory));
}

function showServer() {
  const workers = report.workers || {}, busy = number(workers.busy), waiting = number(report.waiting);
  say(find('place'), location.host);
  say(find('server'), `version ${report.version}, up for ${age(report.uptime_s)}, ${report.description || report.backend || 'no GPU yet'}`
    + (report.draining ? '; it serves no new programs and ends with the last' : '')
    + (report.failure ? `; workers cannot start: ${report.failure}` : ''));
  const states = report.states || {};
  const kept = ['detached', 'suspended'].filter(state => number(states[state]) > 0).map(state => `, ${number(states[state])} ${state}`);
  say(find('count'), `${busy} of at most ${number(report.max_sessions)}${kept.join('')}`);
  say(find('waiting'), waiting > 0 ? `${many(waiting, 'program')} wait${waiting === 1 ? 's' : ''} to be served; ${many(number(workers.starting), 'worker')} starting.`
    : 'No program waits.');
  say(find('you'), token ? `You are ${report.you}.` : 'Without a token sessions are counted, not shown.');
  document.title = `Towline: ${many(busy, 'session')}`;
}

function showGpus() {
  const gpus = list(report.devices);
  find('gpus').replaceChildren(...gpus.map((gpu, nth) => {
    const gauges = gaugesOf(gpu), used = usedOf(gpu, nth), facts = [];
    if (Number.isFinite(gauges.util_gpu)) {
      facts.push(`${Math.round(gauges.util_gpu)} % busy`);
    }
    if (Number.isFinite(gauges.temperature)) {
      facts.push(`${Math.round(gauges.temperature)} °C`);
    }
    if (Number.isFinite(gauges.power)) {
      facts.push(`${Math.round(gauges.power / 1000)} W`);
    }
    const said = `${bytes(used)} of ${bytes(gpu.memory)}`;
    const meter = make('meter', {min: 0, max: Math.max(number(gpu.memory), 1), value: used, title: `memory: ${said}`});
    meter.setAttribute('aria-label', `memory of GPU ${nth}: ${said}`);
    const card = make('div', {className: 'card gpu'}, make('h3', {}, `GPU ${nth} `, make('span', {className: 'now'}, String(gpu.name))), meter,
      make('p', {className: 'now'}, [said, ...facts].join(', ')));
    card.dataset.used = used;
    return card;
  }));
}

// ---- sessions ----

const rateOf = (session, name) => number((rates.get(session.id) || {})[name]);
const waitOf = session => ({detached: session.detached_s, suspended: session.suspended_s})[session.state];

// What the server says of it; of one that may compute, whether it calls.
function stateOf(session) {
  const state = typeof session.state === 'string' ? session.state : 'running', wait = waitOf(session);
  return Number.isFinite(wait) ? `${state} for ${age(wait)}` : state !== 'running' ? state : rateOf(session, 'calls') > 0 ? 'running' : 'idle';
}

const columns = [
  {id: 'id', name: 'Session', type: 'number', of: s => number(s.id), text: s => String(number(s.id))},
  {id: 'program', name: 'Program', type: 'text', of: s => String(s.client)},
  {id: 'process', name: 'Process', type: 'number', of: s => number(s.client_pid), text: s => String(number(s.client_pid))},
  {id: 'tenant', name: 'Whose', type: 'text', of: s => String(s.tenant)},
  {id: 'from', name: 'From', type: 'text', of: s => String(s.peer)},
  {id: 'gpu', name: 'GPU', type: 'number', of: s => number(s.gpu), text: s => (number(s.gpu) < 0 ? '-' : String(s.gpu))},
  {id: 'memory', name: 'Memory', type: 'number', of: s => number(s.memory), text: s => bytes(s.memory)},
  {id: 'calls', name: 'Calls/s', type: 'number', of: s => rateOf(s, 'calls'), text: s => count(rateOf(s, 'calls'))},
  {id: 'in', name: 'In/s', type: 'number', of: s => rateOf(s, 'bytes_in'), text: s => bytes(rateOf(s, 'bytes_in'))},
  {id: 'out', name: 'Out/s', type: 'number', of: s => rateOf(s, 'bytes_out'), text: s => bytes(rateOf(s, 'bytes_out'))},
  {id: 'age', name: 'Age', type: 'number', of: s => number(s.age_s), text: s => age(s.age_s)},
  {id: 'state', name: 'State', type: 'text', of: stateOf},
];
const textOf = (column, session) => (column.text || column.of)(session);

function measure() {
  const now = performance.now(), next = new Map();
  rates = new Map();
  for (const session of list(report.sessions)) {
    const old = before.get(session.id), seconds = old ? (now - old.at) / 1000 : 0, rate = {};
    for (const name of ['calls', 'bytes_in', 'bytes_out']) {
      rate[name] = seconds > 0 ? Math.max(0, number(session[name]) - old[name]) / seconds : 0;
    }
    rates.set(session.id, rate);
    next.set(session.id, {at: now, calls: number(session.calls), bytes_in: number(session.bytes_in), bytes_out: number(session.bytes_out)});
  }
  before = next;
}

function showColumns() {
  find('columns').replaceChildren(...columns.map(column => {
    const button = make('button', {type: 'button', textContent: column.name});
    const head = make('th', {scope: 'col', className: column.type}, button);
    head.dataset.column = column.id;
    button.addEventListener('click', () => {
      sorted = {column: column.id, down: sorted.column === column.id ? !sorted.down : column.type === 'number' && column.id !== 'id'};
      showSessions();
    });
    return head;
  }), make('th', {scope: 'col', textContent: 'End'}));
}

const rows = new Map(); // of the table, by the session's number

function makeRow(id) {
  const cells = columns.map(column => {
    const cell = make('td', {className: column.type});
    cell.dataset.name = column.name;
    return cell;
  });
  const end = make('td', {});
  end.dataset.name = 'End';
  const row = make('tr', {}, ...cells, end);
  row.dataset.session = id;
  const made = {row, cells, end, asking: null};
  rows.set(id, made);
  return made;
}

function showEnd(made, id, program) {
  const asking = asked === id;
  if (made.asking === asking) {
    return;
  }
  const focused = made.end.contains(document.activeElement);
  made.asking = asking;
  const button = (text, name, run, bad) => {
    const one = make('button', {type: 'button', textContent: text, className: bad ? 'bad' : ''});
    one.setAttribute('aria-label', name);
    one.addEventListener('click', run);
    return one;
  };
  const ask = to => () => {
    asked = to;
    showSessions();
  };
  made.end.replaceChildren(...(asking
    ? [button('End it', `really end session ${id}, ${program}`, () => endSession(id), true), ' ', button('No', `do not end session ${id}`, ask(null))]
    : [button('End', `end session ${id}, ${program}`, ask(id), true)]));
  if (focused) {
    made.end.querySelector('button').focus();
  }
}

function showSessions() {
  const by = columns.find(column => column.id === sorted.column), sign = sorted.down ? -1 : 1;
  const wanted = find('filter').value.trim().toLowerCase();
  const all = list(report.sessions);
  const shown = all.filter(session => columns.some(column => textOf(column, session).toLowerCase().includes(wanted)));
  shown.sort((one, other) => {
    const a = by.of(one), b = by.of(other);
    return sign * (a < b ? -1 : a > b ? 1 : 0) || number(one.id) - number(other.id);
  });
  for (const head of find('columns').children) {
    if (head.dataset.column === sorted.column) {
      head.setAttribute('aria-sort', sorted.down ? 'descending' : 'ascending');
    } else {
      head.removeAttribute('aria-sort');
    }
  }
  const body = find('rows');
  shown.forEach((session, nth) => {
    const id = number(session.id), made = rows.get(id) || makeRow(id);
    columns.forEach((column, at) => say(made.cells[at], textOf(column, session)));
    showEnd(made, id, String(session.client));
    if (body.children[nth] !== made.row) { // rows that stay where they are keep the focus
      body.insertBefore(made.row, body.children[nth] || null);
    }
  });
  const ids = new Set(shown.map(session => number(session.id)));
  for (const [id, made] of rows) {
    if (!ids.has(id)) {
      made.row.remove();
      rows.delete(id);
    }
  }
  const others = number(report.others && report.others.sessions);
  say(find('none'), (shown.length === 0 ? all.length > 0 ? 'No session is as the filter says. ' : token ? 'You have no sessions. ' : '' : '')
    + (others > 0 ? `${many(others, 'session')} of ${token ? 'others' : 'users who are not shown here'}.` : ''));
}

async function endSession(id) {
  asked = null;
  try {
    const answer = await fetch(`sessions/${id}/end`, {method: 'POST', headers: {Authorization: `Bearer ${token}`}, signal: AbortSignal.timeout(PATIENCE_MS)});
    say(find('said'), answer.ok ? `Session ${id} ends.` : (await answer.text()).trim());
  } catch {
    say(find('said'), `The server did not answer: whether session ${id} ends is not known.`);
  }
  showSessions();
  look();
}

// ---- charts ----

const WIDTH = 330, HEIGHT = 118, LEFT = 44, TOP = 6, BOTTOM = 100, RIGHT = 326;

const charts = [
  {id: 'busy', title: 'GPU use', text: value => `${Math.round(value)} %`, most: () => 100, series: () => gpuSeries('busy'),
    none: 'This server does not know how busy its GPUs are.'},
  {id: 'memory', title: 'GPU memory', text: bytes, base: 1024, most: () => Math.max(...(past.memory || [0])), series: () => gpuSeries('used')},
  {id: 'calls', title: 'Calls a second', text: count, series: () => [['calls', 'calls_per_s']]},
  {id: 'bytes', title: 'Bytes a second', text: bytes, base: 1024, series: () => [['from programs', 'in_per_s'], ['to programs', 'out_per_s']]},
  {id: 'sessions', title: 'Sessions', text: count, whole: true, series: () => [['served', 'sessions'], ['waiting', 'waiting']]},
];

const gpuSeries = name => list(past.memory).map((_, nth) => [`GPU ${nth}`, `${name} ${nth}`]);

// The next round number: 1, 2 or 5 of some size.
function roundUp(value, base) {
  if (!(value > 0)) {
    return 1;
  }
  const size = base ? base ** Math.floor(Math.log(value) / Math.log(base)) : 10 ** Math.floor(Math.log10(value));
  const steps = base ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024] : [1, 2, 5, 10];
  return size * steps.find(step => step * size >= value * 0.999);
}

function lineOf(values, most, now) {
  let path = '', last = -Infinity;
  values.forEach((value, nth) => {
    const at = past.at_s[nth];
    if (value === null) {
      return;
    }
    const x = RIGHT - (now - at) / HOUR_S * (RIGHT - LEFT), y = BOTTOM - Math.min(value / most, 1) * (BOTTOM - TOP);
    path += `${at - last > 3 * past.every_s ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`;
    last = at;
  });
  return path;
}

function showChart(chart) {
  const series = chart.series().map(([name, column], nth) => ({name, nth, values: past.columns.get(column) || []}));
  const known = series.flatMap(one => one.values).filter(value => value !== null);
  const highest = known.reduce((most, value) => Math.max(most, value), 0);
  const most = (chart.most && chart.most()) || roundUp(chart.whole ? Math.max(highest, 2) : highest, chart.base);
  const now = past.at_s.length > 0 ? past.at_s[past.at_s.length - 1] : 0;
  const last = one => [...one.values].reverse().find(value => value !== null);
  const nows = series.map(one => (last(one) === undefined ? '' : chart.text(last(one))));
  const said = known.length === 0 ? (past.at_s.length > 0 && chart.none) || 'Nothing is known yet.'
    : `${series.map((one, nth) => `${one.name} ${nows[nth]}`).join(', ')} now; at most ${chart.text(highest)} within the last hour`;
  const picture = draw('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `${chart.title}: ${said}`});
  for (const part of [0, 0.5, 1]) {
    const y = BOTTOM - part * (BOTTOM - TOP);
    picture.append(draw('line', {class: 'grid', x1: LEFT, x2: RIGHT, y1: y, y2: y}),
      draw('text', {x: LEFT - 4, y: y + 3, 'text-anchor': 'end'}, chart.text(part * most)));
  }
  for (const [minutes, anchor] of [[60, 'start'], [30, 'middle'], [0, 'end']]) {
    picture.append(draw('text', {x: RIGHT - minutes / 60 * (RIGHT - LEFT), y: HEIGHT - 6, 'text-anchor': anchor}, minutes ? `-${minutes} min` : 'now'));
  }
  for (const one of series) {
    picture.append(draw('path', {class: `line s${one.nth % 8}`, d: lineOf(one.values, most, now)}));
  }
  const legend = make('ul', {className: 'legend'}, ...series.map((one, nth) => {
    const key = draw('svg', {viewBox: '0 0 24 8', 'aria-hidden': 'true'});
    key.append(draw('path', {class: `line s${one.nth % 8}`, d: 'M0 4L24 4'}));
    return make('li', {}, key, ` ${one.name} ${nows[nth]}`);
  }));
  const card = make('div', {className: 'card chart', id: `chart-${chart.id}`}, make('h3', {}, chart.title),
    ...(known.length === 0 ? [make('p', {className: 'now'}, said)] : [picture, legend]));
  card.dataset.points = known.length;
  return card;
}

function takeHistory(history) {
  const fresh = list(history.at_s), columns = new Map(['sessions', 'waiting', 'calls_per_s', 'in_per_s', 'out_per_s'].map(name => [name, list(history[name])]));
  list(history.gpus).forEach((gpu, nth) => {
    columns.set(`busy ${nth}`, list(gpu.busy));
    columns.set(`used ${nth}`, list(gpu.used));
  });
  past.memory = list(history.gpus).map(gpu => number(gpu.memory));
  past.every_s = number(history.every_s) || 5;
  const known = past.at_s.length;
  past.at_s.push(...fresh);
  const drop = past.at_s.findIndex(at => at > past.at_s[past.at_s.length - 1] - HOUR_S);
  past.at_s.splice(0, Math.max(drop, 0));
  for (const [name, values] of columns) {
    const all = past.columns.get(name) || new Array(known).fill(null);
    all.push(...values);
    all.splice(0, Math.max(drop, 0));
    past.columns.set(name, all);
  }
}

// ---- asking ----

let lostAt = null;

function found() {
  lostAt = null;
  find('lost').hidden = true;
  document.querySelector('main').classList.remove('stale');
}

function lose(why) {
  lostAt = lostAt || new Date();
  find('lost').hidden = false;
  say(find('lost'), `${why} since ${lostAt.toLocaleTimeString()}: what is shown is older. It is asked again and again.`);
  document.querySelector('main').classList.add('stale');
}

async function look() {
  const used = token;
  try {
    const answer = await fetch('status.json', {headers: used ? {Authorization: `Bearer ${used}`} : {}, signal: AbortSignal.timeout(PATIENCE_MS)});
    if (answer.status === 401 && used === token) {
      logOut((await answer.text()).trim());
      return;
    }
    if (!answer.ok) {
      lose('The server behind this page has not answered');
      return;
    }
    const got = await answer.json();
    if (used !== token) { // somebody has logged in or out meanwhile
      return;
    }
    report = got;
    found();
    measure();
    showServer();
    showGpus();
    showSessions();
  } catch {
    lose('There is no answer');
  }
}

async function lookBack() {
  const last = past.at_s[past.at_s.length - 1];
  try {
    const answer = await fetch(last === undefined ? 'history.json' : `history.json?after=${last}`, {signal: AbortSignal.timeout(PATIENCE_MS)});
    if (answer.ok) {
      takeHistory(await answer.json());
      find('charts').replaceChildren(...charts.map(showChart));
    }
  } catch { /* look() says that nobody answers */ }
}

function logOut(why) {
  token = '';
  find('token').value = '';
  find('logout').hidden = true;
  say(find('said'), why);
  look();
}

async function again(run, every) {
  if (!document.hidden) {
    await run();
  }
  setTimeout(again, every, run, every);
}

find('login').addEventListener('submit', event => {
  event.preventDefault();
  token = find('token').value.trim();
  find('logout').hidden = token === '';
  say(find('said'), '');
  look();
});
find('logout').addEventListener('click', () => logOut(''));
find('filter').addEventListener('input', () => report && showSessions());
document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && asked !== null) {
    asked = null;
    showSessions();
  }
});
document.addEventListener('visibilitychange', () => !document.hidden && look());

showColumns();
again(look, EVERY_MS);
again(lookBack, HISTORY_MS);
