// Preloaded into a server that would listen on every interface: it then listens on loopback alone.

import net from "node:net";

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  const address = typeof port === "object" ? [port] : [port, "127.0.0.1"];
  return listen.call(this, ...address, ...rest);
};
