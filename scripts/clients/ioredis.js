// Sends the list of commands, or a load, by ioredis. Arguments: `commands LIST PORTS`, `load FILE PORTS` or `patient FILE PORTS`.
// See scripts/clients.sh. The defaults of ioredis are patient.
"use strict";

const fs = require("fs");
const Redis = require("ioredis");

const BEFORE_REPLICAS = 1500;
const WORKERS = 2;
const PACE = 20;

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function connect(ports, settings) {
  const cluster = new Redis.Cluster(ports.map((port) => ({ host: "127.0.0.1", port: Number(port) })), settings);
  // Without a listener Node prints each error of a connection.
  cluster.on("error", () => {});
  return cluster;
}

// Words are separated by spaces; double quotes enclose a word with spaces.
function wordsOf(text) {
  return Array.from(text.matchAll(/"([^"]*)"|(\S+)/g), (found) => (found[2] === undefined ? found[1] : found[2]));
}

// The steps of the list: a kind (empty, or the line's first character), and commands with the numbers of their lines.
function readSteps(path) {
  const steps = [];
  let last = null;
  fs.readFileSync(path, "utf8").split("\n").forEach((text, index) => {
    const line = text.trim();
    const kind = /^[|&~=] /.test(line) ? line[0] : "";
    if (line && !line.startsWith("#")) {
      const command = { number: index + 1, words: wordsOf(kind ? line.slice(2) : line) };
      if ((kind === "|" || kind === "&") && last === kind) {
        steps[steps.length - 1].commands.push(command);
      } else {
        steps.push({ kind, commands: [command] });
      }
    }
    last = line ? kind : null;
  });
  return steps;
}

// A reply as JSON has it.
function plain(reply) {
  if (reply instanceof Error) {
    // ioredis names what went wrong with a transaction's commands apart.
    const previous = (reply.previousErrors || []).map(String);
    return { error: String(reply), ...(previous.length ? { previous } : {}) };
  }
  return Array.isArray(reply) ? reply.map(plain) : reply;
}

const attempt = (action) => Promise.resolve().then(action).then(plain, plain);

function call(cluster, words) {
  return cluster.call(words[0], ...words.slice(1));
}

async function allKeys(cluster) {
  const found = await Promise.all(cluster.nodes("master").map(async (node) => {
    const keys = [];
    let cursor = "0";
    do {
      const [next, some] = await node.scan(cursor);
      cursor = next;
      keys.push(...some);
    } while (cursor !== "0");
    return keys;
  }));
  return found.flat().sort();
}

async function sendCommands(path, ports) {
  const cluster = connect(ports, {});
  let replicas = null;
  for (const { kind, commands } of readSteps(path)) {
    const { number, words } = commands[commands.length - 1];
    let reply;
    if (kind === "|") {
      // A pipeline of ioredis stays in one slot. Commands that are not waited for go to each node together.
      reply = await Promise.all(commands.map((command) => attempt(() => call(cluster, command.words))));
    } else if (kind === "&") {
      reply = await attempt(() => {
        const transaction = cluster.multi();
        commands.forEach((command) => call(transaction, command.words));
        return transaction.exec();
      });
    } else if (kind === "=") {
      reply = await attempt(() => allKeys(cluster));
    } else if (kind === "~") {
      if (replicas === null) {
        await sleep(BEFORE_REPLICAS);
        replicas = connect(ports, { scaleReads: "slave" });
      }
      reply = await attempt(() => call(replicas, words));
    } else {
      reply = await attempt(() => call(cluster, words));
    }
    console.log(`${number}\t${JSON.stringify(reply)}`);
  }
}

// Writes one key after the other, and reads each back.
async function work(cluster, number, seen) {
  for (let n = 0; !seen.stopping;) {
    const [key, value] = [`ioredis:${number}:${n}`, `value${n}`];
    const begun = Date.now();
    try {
      await cluster.set(key, value);
      seen.acknowledged.push(`${key}\t${value}\n`);
      n += 1;
      if ((await cluster.get(key)) !== value) {
        seen.wrong += 1;
      }
    } catch (error) {
      // Whatever the library raises reaches the program. The outcome of a write is open: it is sent again.
      const text = String(error).slice(0, 120);
      seen.errors[text] = (seen.errors[text] || 0) + 1;
    }
    seen.longest_s = Math.max(seen.longest_s, (Date.now() - begun) / 1000);
    await sleep(PACE);
  }
}

async function load(path, ports) {
  const cluster = connect(ports, {});
  const seen = { acknowledged: [], errors: {}, wrong: 0, longest_s: 0, stopping: false };
  const workers = Array.from({ length: WORKERS }, (_, number) => work(cluster, number, seen));
  console.log("ready");
  // The input ends when the load is to end, and with the program that started this one.
  process.stdin.resume();
  process.stdin.on("end", () => { seen.stopping = true; });
  await Promise.all(workers);
  fs.writeFileSync(path, seen.acknowledged.join(""));
  console.log(JSON.stringify({ errors: seen.errors, wrong: seen.wrong, longest_s: seen.longest_s }));
}

const [mode, path, ...ports] = process.argv.slice(2);
({ commands: sendCommands, load, patient: load })[mode](path, ports).then(
  () => process.exit(0),
  (error) => { console.error(error); process.exit(1); },
);
