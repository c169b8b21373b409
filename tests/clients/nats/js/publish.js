// Publishes on NATS what it is told on its standard input, with the JavaScript client; see tests/clients/nats_drivers.py.
import { readFileSync } from "node:fs";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";

const WAIT_MS = 30_000;
const WINDOW = 256;

const connection = await connect({ servers: process.argv[2] });
const stream = jetstream(connection, { timeout: WAIT_MS });

function optionsOf(order) {
  const options = {};
  if (order.headers?.length) {
    options.headers = headers();
    for (const [name, value] of order.headers) options.headers.append(name, value);
  }
  return options;
}

async function acked(order, payload) {
  const options = { ...optionsOf(order), timeout: WAIT_MS };
  if (order.id) options.msgID = order.id;
  const expect = {};
  if (order.stream) expect.streamName = order.stream;
  if (order.last_seq !== undefined) expect.lastSequence = order.last_seq;
  if (order.last_id) expect.lastMsgID = order.last_id;
  if (Object.keys(expect).length) options.expect = expect;
  const { stream: name, seq, duplicate } = await stream.publish(order.subject, payload, options);
  return { stream: name, seq, ...(duplicate ? { duplicate } : {}) };
}

function refused(error) {
  return error.code > 999 ? { err_code: error.code, failed: error.message } : { failed: error.message || error.name };
}

async function done(order) {
  const payload = Buffer.from(order.payload ?? "", "base64");
  if (order.via === "plain") {
    connection.publish(order.subject, payload, optionsOf(order));
    return {};
  }
  if (order.via === "info") {
    const manager = await jetstreamManager(connection);
    await manager.streams.info(order.stream);
    return {};
  }
  return await acked(order, payload);
}

let begun = [];

async function finish() {
  for (const one of await Promise.all(begun)) console.log(JSON.stringify(one));
  begun = [];
}

for (const order of JSON.parse(readFileSync(0, "utf8"))) {
  if (order.via !== "window" || begun.length === WINDOW) await finish();
  begun.push(done(order).catch(refused));
}
await finish();
await connection.flush();
await connection.close();
