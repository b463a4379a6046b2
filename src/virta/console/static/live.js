// The one WebSocket of this tab. Streams that were open are asked for again after a lost connection.

/** @typedef {{request: () => object, got: (message: any) => void, failed?: (error: any) => void, ended?: () => void}} Stream */

const streams = new Map();
let socket = null;
let wait = 200;
let count = 0;
const listeners = new Set();
export let state = "connecting";

function tell(now) {
  state = now;
  for (const each of listeners) each(now);
}

/** Be told "open" and "lost". */
export function onState(call) {
  listeners.add(call);
  call(state);
}

function connect() {
  const address = new URL("live", document.baseURI);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  address.search = "";
  socket = new WebSocket(address);
  socket.onopen = () => {
    wait = 200;
    tell("open");
    for (const [id, stream] of streams) ask(id, stream);
  };
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    const stream = streams.get(message.id);
    if (!stream) return;
    if (message.error) {
      streams.delete(message.id);
      if (stream.failed) stream.failed(message.error);
    } else if (message.end) {
      streams.delete(message.id);
      if (stream.ended) stream.ended();
    } else stream.got(message);
  };
  socket.onclose = () => {
    tell("lost");
    setTimeout(connect, wait);
    wait = Math.min(wait * 1.6, 3000);
  };
}

function ask(id, stream) {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ ...stream.request(), id }));
}

/**
 * Open a stream; `request` is called anew after each reconnect, so it can say how far one has come.
 * @param {Stream} stream
 */
export function open(stream) {
  const id = `s${++count}`;
  streams.set(id, stream);
  ask(id, stream);
  return {
    stop() {
      if (!streams.delete(id)) return;
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ id, op: "stop" }));
    },
    again() {
      if (streams.has(id)) ask(id, stream);
    },
    get running() {
      return streams.has(id);
    },
  };
}

connect();

/** Lose the connection on purpose: for tests of what happens then. */
export function lose() {
  if (socket) socket.close();
}

export class Refused extends Error {
  constructor(error, status) {
    super(error.message);
    this.code = error.code;
    this.hint = error.hint;
    this.status = status;
  }
}

async function answered(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(body.error || { message: `the server answered ${response.status}` }, response.status);
  return body;
}

/** GET api/… */
export async function get(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== null && value !== undefined && value !== "") query.set(name, value);
  return answered(await fetch(`api/${path}?${query}`, options));
}

/** POST api/… */
export async function post(path, body, options = {}) {
  return answered(
    await fetch(`api/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), ...options }),
  );
}
