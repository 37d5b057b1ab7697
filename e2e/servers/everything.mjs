// server-everything, unmodified, over its own Streamable HTTP: on loopback, at any free port unless
// `--port` names one; prints its URL; with `--end-with-stdin` it ends with whoever started it.

import net from "node:net";
import { parseArgs } from "node:util";

import "../loopback.mjs";

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "0" },
    "end-with-stdin": { type: "boolean", default: false },
  },
});

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  this.once("listening", () => {
    console.log(`everything listens on http://127.0.0.1:${this.address().port}/mcp`);
  });
  return listen.apply(this, args);
};

if (values["end-with-stdin"]) {
  process.stdin.resume();
  process.stdin.on("end", () => process.exit(0));
}

process.env.PORT = values.port;
process.argv.splice(2, process.argv.length, "streamableHttp");
await import("@modelcontextprotocol/server-everything/dist/index.js");
