// Node: each request asks two questions at once, then a third one, over a pool of connections.
//
// server.js PORT ASKED LOG. LOG gets which request went over which connection, a line for each exchange.
const fs = require("fs");
const http = require("http");

const [port, asked] = process.argv.slice(2, 4).map(Number);
const log = fs.openSync(process.argv[4], "a");
const agent = new http.Agent({ keepAlive: true, maxSockets: 128 });
const note = (number, asking, answering) => fs.writeSync(log, `${number} ${asking}:${answering}\n`);

const ask = (number, path) => new Promise((done, failed) => {
  const request = http.get({ port: asked, host: "127.0.0.1", path, agent }, (response) => {
    note(number, response.socket.localPort, asked);
    let body = "";
    response.on("data", (data) => { body += data; });
    response.on("end", () => done(body.length));
  });
  request.on("error", failed);
});

http.createServer(async (request, response) => {
  const number = request.headers["x-number"];
  note(number, request.socket.remotePort, port);
  const parts = await Promise.all([ask(number, "/part/0"), ask(number, "/part/1")]);
  const third = await ask(number, "/third");
  response.end(`${number} ${parts[0] + parts[1] + third}\n`);
}).listen(port, "127.0.0.1");
