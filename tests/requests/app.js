// The application server of app.py with callbacks: app.js PORT REDIS_PORT LOG.
'use strict';
const fs = require('fs'), http = require('http'), net = require('net');
const [port, storePort, logName] = process.argv.slice(2);
const log = fs.openSync(logName, 'a');
const pool = [];

function ask(number, done) {
  const store = pool.pop() || net.connect(+storePort, '127.0.0.1').setNoDelay(true);
  const key = `key${number % 100}`;
  store.once('data', (value) => {
    pool.push(store);
    done(value.toString().slice(1).trim(), store.localPort);
  });
  store.write(`*2\r\n$4\r\nINCR\r\n$${key.length}\r\n${key}\r\n`);
}

http.createServer((request, response) => {
  const number = +request.headers['x-number'];
  ask(number, (value, from) => {
    fs.writeSync(log, `${number} ${request.socket.remotePort}:${port} ${from}:${storePort}\n`);
    response.end(`${number} ${value}\n`);
  });
}).listen(+port, '127.0.0.1', 512);
