// Node: each request asks over few connections that all requests share.
//
// pool.js PORT ASKED LOG MODE. MODE is `turns`: two HTTP questions in turn, over a pool of six connections; `both`: the
// same two at once. LOG gets which request went over which connection, a line for each exchange.
const fs = require("fs");
const http = require("http");

const [port, asked] = process.argv.slice(2, 4).map(Number);
const log = fs.openSync(process.argv[4], "a");
const mode = process.argv[5];
const agent = new http.Agent({ keepAlive: true, maxSockets: 6 });
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

const modes = {
  turns: async (number) => await ask(number, "/one") + await ask(number, "/two"),
  both: async (number) => {
    const parts = await Promise.all([ask(number, "/one"), ask(number, "/two")]);
    return parts[0] + parts[1];
  },
};

http.createServer(async (request, response) => {
  const number = request.headers["x-number"];
  note(number, request.socket.remotePort, port);
  response.end(`${number} ${await modes[mode](number)}\n`);
}).listen(port, "127.0.0.1");
