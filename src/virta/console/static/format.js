// Numbers, sizes, times and values as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value >= 1e6) return one.format(value / 1e6) + " M";
  if (value >= 1e4) return one.format(value / 1e3) + " k";
  return value < 10 ? one.format(value) : whole.format(value);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(size) {
  if (size === null || size === undefined) return "–";
  let power = 0;
  while (size >= 1024 && power < UNITS.length - 1) {
    size /= 1024;
    power += 1;
  }
  return `${power && size < 100 ? one.format(size) : whole.format(size)} ${UNITS[power]}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  seconds = Math.max(0, seconds);
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? one.format(seconds) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${one.format(seconds / 3600)} h`;
  return `${whole.format(seconds / 86400)} d`;
}

export function age(us, now) {
  if (us === null || us === undefined) return "–";
  const seconds = (now - us) / 1e6;
  return seconds < 1.5 ? "now" : span(seconds);
}

const pad = (value, digits = 2) => String(value).padStart(digits, "0");

/** A moment in UTC, to the millisecond; `day` adds the date. */
export function time(us, day = true) {
  const at = new Date(Math.floor(us / 1000));
  const clock = `${pad(at.getUTCHours())}:${pad(at.getUTCMinutes())}:${pad(at.getUTCSeconds())}.${pad(at.getUTCMilliseconds(), 3)}`;
  return day ? `${at.getUTCFullYear()}-${pad(at.getUTCMonth() + 1)}-${pad(at.getUTCDate())} ${clock}` : clock;
}

/** A moment as the range grammar takes it, exact. */
export function moment(us) {
  const at = new Date(Math.floor(us / 1e6) * 1000);
  const part = pad(((us % 1e6) + 1e6) % 1e6, 6);
  return at.toISOString().replace(/\.\d+Z$/, part === "000000" ? "Z" : `.${part}Z`);
}

/** One line for a value in a cell, and the class that colours it. */
export function cell(value) {
  if (value === null || value === undefined) return ["null", "null"];
  if (typeof value === "boolean") return [String(value), "bool"];
  if (typeof value === "number") return [String(value), "num"];
  if (typeof value === "string") return [value.replace(/[\r\n\t]+/g, " "), value === "" ? "empty" : "text"];
  if (typeof value === "object" && "$cut" in value) return [value.$cut.replace(/[\r\n\t]+/g, " ") + " …", "cut", bytes(value.size)];
  if (typeof value === "object" && "$hex" in value) return ["0x" + value.$hex, "hex", bytes(value.size)];
  return [JSON.stringify(value), "json"];
}

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
