// The matrix in C++: `matrix server`, which prints its port, and `matrix client PORT`, which asks its parent by
// `cut` and `kill` to do what only that can.
#include <time.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "matrix.grpc.pb.h"

using grpc::ClientContext;
using grpc::ServerContext;
using grpc::Status;
using matrix::v1::Answer;
using matrix::v1::Ask;

static std::string End(const std::string& tag) {
  const std::string rest = tag.substr(tag.find('/') + 1);
  return rest.substr(0, rest.find('/'));
}

static bool GoesOn(const std::string& tag) {
  return End(tag) == "ok" || End(tag) == "idle" || End(tag) == "forgotten";
}

static std::unique_ptr<matrix::v1::Matrix::Stub> next;

class Matrix final : public matrix::v1::Matrix::Service {
  static Status Act(ServerContext* context, const std::string& tag) {
    const std::string end = End(tag);
    if (end == "error") return Status(grpc::StatusCode::INVALID_ARGUMENT, "no");
    if (end == "abort") return Status(grpc::StatusCode::ABORTED, "enough");
    if (end == "cancel" || end == "deadline" || end == "cut" || end == "killed")
      while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return Status::OK;
  }
  Status Unary(ServerContext* context, const Ask* ask, Answer* answer) override {
    answer->set_number(42);
    // Of a chain: as many calls of the next server as the first digit says, each with the other digits.
    if (next && !ask->secret().empty())
      for (int n = ask->secret()[0] - '0'; n > 0; n--) {
        ClientContext inner;
        Ask further;
        further.set_tag(ask->tag());
        further.set_secret(ask->secret().substr(1));
        Answer ignored;
        Status status = next->Unary(&inner, further, &ignored);
        if (!status.ok()) return status;
      }
    return Act(context, ask->tag());
  }
  Status ServerStream(ServerContext* context, const Ask* ask, grpc::ServerWriter<Answer>* writer) override {
    for (int number = 1; number <= 3; number++) {
      Answer answer;
      answer.set_number(number);
      writer->Write(answer);
    }
    return Act(context, ask->tag());
  }
  Status ClientStream(ServerContext* context, grpc::ServerReader<Ask>* reader, Answer* answer) override {
    Ask ask;
    while (reader->Read(&ask))
      if (!GoesOn(ask.tag())) break;
    answer->set_number(42);
    return Act(context, ask.tag());
  }
  Status Bidi(ServerContext* context, grpc::ServerReaderWriter<Answer, Ask>* stream) override {
    Ask ask;
    Answer answer;
    answer.set_number(1);
    while (stream->Read(&ask)) {
      stream->Write(answer);
      if (!GoesOn(ask.tag())) break;
    }
    return Act(context, ask.tag());
  }
};

static int Serve() {
  if (const char* port = getenv("FETTLE_NEXT"))
    next = matrix::v1::Matrix::NewStub(
        grpc::CreateChannel(std::string("127.0.0.1:") + port, grpc::InsecureChannelCredentials()));
  Matrix service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::cout << port << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

static int64_t Cpu() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// The CPU time of a call, client and server in this process.
static int Bench(int calls) {
  Matrix service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  auto stub = matrix::v1::Matrix::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  Ask ask;
  ask.set_tag("unary/ok");
  ask.set_body("12345");
  auto run = [&](int calls) {
    for (int i = 0; i < calls; i++) {
      ClientContext context;
      Answer answer;
      if (!stub->Unary(&context, ask, &answer).ok()) abort();
    }
  };
  run(calls / 4);
  int64_t begin = Cpu();
  run(calls);
  std::cout << (Cpu() - begin) / calls << std::endl;
  server->Shutdown();
  return 0;
}

static void AskParent(const char* what) {
  std::cout << what << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

// A call in progress. What is not waited for is dropped.
struct Running {
  std::unique_ptr<ClientContext> context{new ClientContext};
  Answer answer;
  grpc::CompletionQueue cq;
  Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Answer>> unary;
  std::unique_ptr<grpc::ClientReader<Answer>> server;
  std::unique_ptr<grpc::ClientWriter<Ask>> client;
  std::unique_ptr<grpc::ClientReaderWriter<Ask, Answer>> bidi;
  bool drained = false;

  void Wait(const std::string& tag) {
    if (unary) {
      void* done;
      bool ok;
      cq.Next(&done, &ok);
    } else if (server) {
      while (server->Read(&answer)) {
      }
      server->Finish();
    } else if (client) {
      if (GoesOn(tag)) client->WritesDone();
      client->Finish();
    } else {
      if (GoesOn(tag)) bidi->WritesDone();
      while (bidi->Read(&answer)) {
      }
      bidi->Finish();
    }
  }
  ~Running() {
    cq.Shutdown();
    void* done;
    bool ok;
    while (cq.Next(&done, &ok)) {
    }
  }
};

static std::unique_ptr<Running> Start(matrix::v1::Matrix::Stub& stub, const std::string& kind,
                                      const std::string& tag, bool deadline) {
  std::unique_ptr<Running> call(new Running);
  if (deadline) call->context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  Ask ask;
  ask.set_tag(tag);
  ask.set_body("12345");
  if (kind == "unary") {
    call->unary = stub.AsyncUnary(call->context.get(), ask, &call->cq);
    // The question is sent with this. What is idle or forgotten never asks for its end.
    if (End(tag) != "idle" && End(tag) != "forgotten")
      call->unary->Finish(&call->answer, &call->status, call.get());
  } else if (kind == "server") {
    call->server = stub.ServerStream(call->context.get(), ask);
  } else if (kind == "client") {
    call->client = stub.ClientStream(call->context.get(), &call->answer);
    call->client->Write(ask);
    call->client->Write(ask);
  } else {
    call->bidi = stub.Bidi(call->context.get());
    call->bidi->Write(ask);
    call->bidi->Write(ask);
  }
  return call;
}

static void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

int main(int, char** argv) {
  if (argv[1] == std::string("server")) return Serve();
  if (argv[1] == std::string("bench")) return Bench(std::stoi(argv[2]));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  auto channel = grpc::CreateCustomChannel(std::string("127.0.0.1:") + argv[2],
                                           grpc::InsecureChannelCredentials(), arguments);
  auto stub = matrix::v1::Matrix::NewStub(channel);
  std::vector<std::unique_ptr<Running>> idle;
  for (const char* end : {"ok", "error", "cancel", "deadline", "abort", "cut", "idle", "forgotten", "killed"}) {
    const std::string what = end;
    std::vector<std::pair<std::string, std::unique_ptr<Running>>> running;
    for (const char* kind : {"unary", "server", "client", "bidi"}) {
      const std::string tag = std::string(kind) + "/" + what;
      if (what == "ok" || what == "error" || what == "abort") {
        if (kind == std::string("unary")) {
          ClientContext context;
          Ask ask;
          ask.set_tag(tag);
          ask.set_body("12345");
          Answer answer;
          stub->Unary(&context, ask, &answer);
        } else {
          Start(*stub, kind, tag, false)->Wait(tag);
        }
      } else if (what == "deadline") {
        Start(*stub, kind, tag, true)->Wait(tag);
      } else if (what == "cancel") {
        auto call = Start(*stub, kind, tag, false);
        Sleep(100);
        call->context->TryCancel();
        call->Wait(tag);
      } else if (what == "idle") {
        idle.push_back(Start(*stub, kind, tag, false));
      } else if (what == "forgotten") {
        auto call = Start(*stub, kind, tag, false);
        Sleep(100);
      } else {
        running.emplace_back(tag, Start(*stub, kind, tag, false));
      }
    }
    if (what == "cut" || what == "killed") {
      Sleep(200);
      AskParent(what == "cut" ? "cut" : "kill");
      for (auto& call : running) call.second->Wait(call.first);
      if (what == "cut") channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
    }
  }
  idle.clear();
  Sleep(200);
  std::cout << "done" << std::endl;
}
