# async-http: each request asks two questions at once, each by a fiber of its own, then a third one, over a pool of connections.
#
# server.rb PORT ASKED LOG. LOG gets which request went over which connection, a line for each exchange.
require "async"
require "async/http/client"
require "async/http/endpoint"
require "async/http/server"

port, asked = ARGV[0].to_i, ARGV[1].to_i
log = File.open(ARGV[2], "a")
log.sync = true
note = ->(number, asking, answering) { log.syswrite("#{number} #{asking}:#{answering}\n") }

Async do
  client = Async::HTTP::Client.new(Async::HTTP::Endpoint.parse("http://127.0.0.1:#{asked}"))
  ask = lambda do |number, path|
    response = client.get(path)
    # No other request uses the connection before the answer is read.
    note.(number, response.connection.stream.io.local_address.ip_port, asked)
    response.read.length
  end
  Async::HTTP::Server.for(Async::HTTP::Endpoint.parse("http://127.0.0.1:#{port}")) do |request|
    number = request.headers["x-number"].first.to_i
    note.(number, request.remote_address.ip_port, port)
    parts = 2.times.map { |part| Async { ask.(number, "/part/#{part}") } }.map(&:wait)
    third = ask.(number, "/third")
    Protocol::HTTP::Response[200, {}, ["#{number} #{parts.sum + third}\n"]]
  end.run
end
