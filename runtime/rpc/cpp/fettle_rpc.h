/* fettle_rpc.h: what stubs of protoc-gen-fettle call; programs do not use it themselves.
 *
 * A call is followed from its beginning to its one end and reported to the sensor rpc.calls. What is known of
 * it lies in a Call, in no thread.
 *
 * gRPC's classes for streams and for asynchronous calls are final, and programs name them; so they cannot be
 * wrapped. But each call has a list of interceptors, and ours is put there when the call is made: `Tap` is a
 * channel that makes calls by another and does so. The list is private. C++ lets an explicit instantiation name
 * private members ([temp.spec]/6), and `Private` below uses that: it is checked by the compiler, and needs no
 * change of gRPC. A blocking call with one answer is a function that returns its status; it needs none of this.
 *
 * C++14, gRPC 1.30 to 1.51 (later ones are not tried).
 */
#ifndef FETTLE_RPC_H
#define FETTLE_RPC_H

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <google/protobuf/message_lite.h>
#include <grpcpp/client_context.h>
#include <grpcpp/impl/call.h>
#include <grpcpp/impl/channel_interface.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/client_interceptor.h>

#include "fettle.h"

/* Not `fettle`: that is the option of fields, in C++ a variable. */
namespace fettle_rpc {

/* ------------------------------------------------------------------ events: crates/base/abi/src/rpc.rs ---- */

constexpr unsigned kCall = 1, kHook = 16, kFields = 9, kWords = 30, kTextBytes = 32;
constexpr uint64_t kServer = 1, kNoStatus = 255;
/* Ticks of the time stamp counter: half a millisecond, or less. */
constexpr uint64_t kQuick = 1000000;
enum Ended : uint64_t { FINISHED = 1, CANCELLED, DEADLINE, DROPPED, RAISED, LEFT };
enum Hook {
    BEFORE_CALL = 3, AFTER_CALL, BEFORE_DISPATCH, AFTER_DISPATCH, BEFORE_REPLY_ONLY, AFTER_REPLY_ONLY,
    BEFORE_REPLY_WAIT, AFTER_REPLY_WAIT, BEFORE_COMPONENT, AFTER_COMPONENT, BEFORE_UNMARSHAL,
    AFTER_UNMARSHAL, BEFORE_MARSHAL, AFTER_MARSHAL
};
enum class Mode { PERFORMANCE, CFLOW, SCALAR };

/* One sensor of the process, however many files include this. */
template <int N>
struct Sensors {
    static fettle_sensor calls;
    static __thread fettle_thread calls_thread;
};
template <int N>
fettle_sensor Sensors<N>::calls = {"rpc.calls", 17, 1, 0, FETTLE_KIND_LIST, FETTLE_DROP,
                                   FETTLE_DEFAULT_SLOTS, 8, 20, 0, 0, nullptr};
template <int N>
__thread fettle_thread Sensors<N>::calls_thread = {&fettle__none, 0, 0};

inline void commit(unsigned event, const uint64_t *words, unsigned n) {
    fettle_commit(&Sensors<0>::calls, &Sensors<0>::calls_thread, event, words, n);
}

/* Whether calls are reported; makes the sensor at first. */
inline bool enabled() {
    uint32_t state = __atomic_load_n(&Sensors<0>::calls.state, __ATOMIC_RELAXED);
    if (state == FETTLE__ON) return true;
    if (state == FETTLE__OFF) return false;
    return fettle__writer(&Sensors<0>::calls, &Sensors<0>::calls_thread) != nullptr;
}

inline uint64_t random_bits() {
    static thread_local std::mt19937_64 source{std::random_device{}() * 0x100000001ull ^ __builtin_ia32_rdtsc()};
    return source();
}

/* ------------------------------------------------------------------ calls ---- */

class Call;

/* A method, as stubs describe it. */
struct Method {
    uint32_t service;
    uint16_t number;
    const char *name;
    uint64_t flags;
    Mode mode;
    bool sends_id;
    /* Take what is marked from a message. */
    void (*request)(const void *message, Call &call, bool first);
    void (*response)(const void *message, Call &call, bool first);
    /* Sizes of messages. */
    size_t (*request_size)(const void *message);
    size_t (*response_size)(const void *message);
    /* The mode `scalar`. */
    void (*sum)(bool server, uint64_t ns, bool failed);
    /* Code of one's own at hooks; null if there is none. */
    void (*hook)(int number, Call &call);
    /* What a call has for code of one's own; null if there is none. */
    std::shared_ptr<void> (*variables)();
};

/* The call that this thread serves. */
inline Call *&current() {
    static thread_local Call *call = nullptr;
    return call;
}

inline double tick() {
    static const double length = [] {
        uint64_t ticks = __builtin_ia32_rdtsc(), start = fettle__clock(1);
        while (fettle__clock(1) - start < 2000000) {
        }
        uint64_t end = fettle__clock(1);
        return double(end - start) / double(__builtin_ia32_rdtsc() - ticks);
    }();
    return length;
}

/* A call in progress. */
class Call {
  public:
    Call(const Method &m, bool is_server) : method(m), server(is_server) {
        words[0] = __builtin_ia32_rdtsc();
        Call *outer = is_server ? nullptr : current();
        words[5] = outer ? outer->words[5] : random_bits();
        words[6] = outer ? outer->words[6] : random_bits();
        words[7] = random_bits() | 1;
        words[8] = outer ? outer->words[7] : 0;
        if (m.variables != nullptr) variables = m.variables();
        hook(is_server ? BEFORE_DISPATCH : BEFORE_CALL);
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    /* Takes over the ids of a `traceparent`, if it is one. */
    void comes_from(const char *text, size_t length) {
        uint64_t parts[3] = {0, 0, 0};
        static const int starts[] = {3, 19, 36};
        if (length < 52 || text[2] != '-' || text[35] != '-' || text[52 == length ? 2 : 52] != '-') return;
        for (int part = 0; part < 3; part++)
            for (int i = 0; i < 16; i++) {
                char c = text[starts[part] + i];
                unsigned digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
                if (digit > 15) return;
                parts[part] = parts[part] << 4 | digit;
            }
        if ((parts[0] | parts[1]) == 0 || parts[2] == 0) return;
        words[5] = parts[0];
        words[6] = parts[1];
        words[8] = parts[2];
    }

    /* The call's own `traceparent`. */
    std::string header() const {
        std::string text = "00-";
        put(text, words[5]);
        put(text, words[6]);
        text += '-';
        put(text, words[7]);
        return text + "-01";
    }

    void hook(Hook number) {
        if (method.mode == Mode::CFLOW) {
            const uint64_t event[] = {words[7], what(kNoStatus, 0), words[5], words[6],
                                      __builtin_ia32_rdtsc()};
            commit(kHook + number, event, 5);
        }
        if (method.hook != nullptr) method.hook(number, *this);
    }

    /* Counts a message and takes what is marked in it. */
    void message(const void *message, bool is_request, bool is_sent) {
        auto size = is_request ? method.request_size : method.response_size;
        auto take = is_request ? method.request : method.response;
        uint32_t before = (is_sent ? sent : received).fetch_add(1, std::memory_order_relaxed);
        (is_sent ? sent_bytes : received_bytes).fetch_add(size(message), std::memory_order_relaxed);
        if (take != nullptr && !over.load(std::memory_order_acquire)) take(message, *this, before == 0);
    }

    /* Counts a message that was sent and is not to be seen. */
    void counts(size_t bytes) {
        sent.fetch_add(1, std::memory_order_relaxed);
        sent_bytes.fetch_add(bytes, std::memory_order_relaxed);
    }

    /* Since it began. */
    uint64_t ticks() const { return __builtin_ia32_rdtsc() - words[0]; }

    void value(unsigned word, uint64_t value) { words[kFields + word] = value; }
    void add(unsigned word, uint64_t value) { words[kFields + word] += value; }
    void number(unsigned word, double value) { std::memcpy(&words[kFields + word], &value, 8); }
    void text(unsigned word, const std::string &text) {
        char bytes[kTextBytes] = {0};
        std::memcpy(bytes, text.data(), text.size() < kTextBytes ? text.size() : kTextBytes);
        std::memcpy(&words[kFields + word], bytes, kTextBytes);
    }

    /* Ends the call, if nothing has yet. */
    void end(int status, uint64_t ended = FINISHED) {
        if (over.exchange(true, std::memory_order_acq_rel)) return;
        if (ended == FINISHED && !server) {
            if (status == grpc::StatusCode::CANCELLED) ended = CANCELLED;
            if (status == grpc::StatusCode::DEADLINE_EXCEEDED) ended = DEADLINE;
        }
        hook(server ? AFTER_DISPATCH : AFTER_CALL);
        if (method.mode == Mode::SCALAR) {
            method.sum(server, uint64_t(double(__builtin_ia32_rdtsc() - words[0]) * tick()), status != 0);
            return;
        }
        words[1] = what(uint64_t(status) & 255, ended);
        words[2] = uint64_t(received) << 32 | sent;
        words[3] = sent_bytes;
        words[4] = received_bytes;
        unsigned n = kWords;
        while (n > kFields && words[n - 1] == 0) n--;
        commit(kCall, words, n);
    }

    const Method &method;
    const bool server;
    std::shared_ptr<void> variables;

  private:
    static void put(std::string &text, uint64_t value) {
        for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
    }
    uint64_t what(uint64_t status, uint64_t ended) const {
        return uint64_t(method.service) << 32 | uint64_t(method.number) << 16 | status << 8 | ended << 4 |
               method.flags | (server ? kServer : 0);
    }

    std::atomic<bool> over{false};
    std::atomic<uint32_t> sent{0}, received{0};
    std::atomic<uint64_t> sent_bytes{0}, received_bytes{0};
    uint64_t words[kWords] = {0};
};

/* ------------------------------------------------------------------ clients ---- */

/* A blocking call with one answer. */
template <class Do, class Request, class Response>
inline grpc::Status unary(const Method &method, grpc::ClientContext *context, const Request &request,
                          Response *response, Do &&call_it) {
    if (!enabled()) return call_it();
    Call call(method, false);
    if (method.sends_id) context->AddMetadata("traceparent", call.header());
    call.message(&request, true, true);
    call.hook(BEFORE_REPLY_WAIT);
    grpc::Status status = call_it();
    call.hook(AFTER_REPLY_WAIT);
    if (status.ok()) call.message(response, false, false);
    call.end(status.error_code());
    return status;
}

namespace {
/* Gives a private member its name; see above. */
template <class Tag, typename Tag::type Member>
struct Private {
    friend typename Tag::type member(Tag) { return Member; }
};
#define FETTLE__PRIVATE(tag, kind, name)   \
    struct tag {                           \
        using type = kind;                 \
        friend type member(tag);           \
    };                                     \
    template struct Private<tag, name>

using Interceptors = std::vector<std::unique_ptr<grpc::experimental::Interceptor>>;
using InterceptorsOf = Interceptors grpc::experimental::ClientRpcInfo::*;
using CreateCallOf = grpc::internal::Call (grpc::ChannelInterface::*)(const grpc::internal::RpcMethod &,
                                                                      grpc::ClientContext *,
                                                                      grpc::CompletionQueue *);
using CallbackCQOf = grpc::CompletionQueue *(grpc::ChannelInterface::*)();
FETTLE__PRIVATE(InterceptorsTag, InterceptorsOf, &grpc::experimental::ClientRpcInfo::interceptors_);
FETTLE__PRIVATE(CreateCallTag, CreateCallOf, &grpc::ChannelInterface::CreateCall);
FETTLE__PRIVATE(CallbackCQTag, CallbackCQOf, &grpc::ChannelInterface::CallbackCQ);
}  // namespace

/* Follows a call by what gRPC tells its interceptors. It goes with the call's context: a call that the program
 * leaves without asking for its status ends then. */
class Follower : public grpc::experimental::Interceptor {
  public:
    /* `request` is the one message of a call that has one, or null. */
    Follower(const Method &method, const void *request) : call_(method, false), is_counted_(request != nullptr) {
        if (request != nullptr) call_.message(request, true, true);
    }
    ~Follower() override { call_.end(grpc::StatusCode::CANCELLED, DROPPED); }

    void Intercept(grpc::experimental::InterceptorBatchMethods *batch) override {
        using Points = grpc::experimental::InterceptionHookPoints;
        if (batch->QueryInterceptionHookPoint(Points::PRE_SEND_INITIAL_METADATA) && call_.method.sends_id) {
            header_ = call_.header();
            batch->GetSendInitialMetadata()->insert(std::make_pair("traceparent", header_));
        }
        if (batch->QueryInterceptionHookPoint(Points::PRE_SEND_MESSAGE)) {
            call_.hook(BEFORE_MARSHAL);
            /* Of a stream by completion queues the message is written already, and not there any more. */
            const void *message = is_counted_ ? nullptr : batch->GetSendMessage();
            if (message != nullptr) call_.message(message, true, true);
            else if (!is_counted_) call_.counts(batch->GetSerializedSendMessage()->Length());
        }
        if (batch->QueryInterceptionHookPoint(Points::POST_SEND_MESSAGE)) call_.hook(AFTER_MARSHAL);
        if (batch->QueryInterceptionHookPoint(Points::PRE_RECV_MESSAGE)) call_.hook(BEFORE_REPLY_WAIT);
        if (batch->QueryInterceptionHookPoint(Points::POST_RECV_MESSAGE)) {
            call_.hook(AFTER_REPLY_WAIT);
            const void *message = batch->GetRecvMessage();
            if (message != nullptr) call_.message(message, false, false);
        }
        if (batch->QueryInterceptionHookPoint(Points::POST_RECV_STATUS))
            call_.end(batch->GetRecvStatus()->error_code());
        batch->Proceed();
    }

  private:
    Call call_;
    const bool is_counted_;
    std::string header_;
};

/* A channel that makes calls by another one, and follows them. It is needed only while the call is made. */
class Tap final : public grpc::ChannelInterface {
  public:
    Tap(grpc::ChannelInterface *inner, const Method &method, const void *request = nullptr)
        : inner_(inner), method_(method), request_(request) {}
    grpc::ChannelInterface *get() { return enabled() ? this : inner_; }

  private:
    grpc_connectivity_state GetState(bool try_to_connect) override { return inner_->GetState(try_to_connect); }
    grpc::internal::Call CreateCall(const grpc::internal::RpcMethod &method, grpc::ClientContext *context,
                                    grpc::CompletionQueue *cq) override {
        grpc::internal::Call call = (inner_->*member(CreateCallTag()))(method, context, cq);
        auto *info = call.client_rpc_info();
        if (info != nullptr)
            (info->*member(InterceptorsTag())).push_back(
                std::unique_ptr<grpc::experimental::Interceptor>(new Follower(method_, request_)));
        return call;
    }
    grpc::CompletionQueue *CallbackCQ() override { return (inner_->*member(CallbackCQTag()))(); }
    /* gRPC asks the call's own channel for these, never this one. */
    void PerformOpsOnCall(grpc::internal::CallOpSetInterface *, grpc::internal::Call *) override {}
    void *RegisterMethod(const char *) override { return nullptr; }
    void NotifyOnStateChangeImpl(grpc_connectivity_state, gpr_timespec, grpc::CompletionQueue *, void *) override {}
    bool WaitForStateChangeImpl(grpc_connectivity_state, gpr_timespec) override { return false; }

    grpc::ChannelInterface *inner_;
    const Method &method_;
    const void *request_;
};

/* ------------------------------------------------------------------ servers ---- */

/* A handler of a synchronous server. `request` and `response` are null where there is a stream. */
template <class Do>
inline grpc::Status handle(const Method &method, grpc::ServerContext *context, const void *request,
                           const void *response, Do &&handler) {
    if (!enabled()) return handler();
    Call call(method, true);
    const auto &metadata = context->client_metadata();
    auto id = metadata.find("traceparent");
    if (id != metadata.end()) call.comes_from(id->second.data(), id->second.size());
    if (request != nullptr) call.message(request, true, false);
    struct Serves {
        Call *outer = current();
        Call &call;
        explicit Serves(Call &c) : call(c) { current() = &c; }
        ~Serves() {
            current() = outer;
            /* Only an exception leaves the call open; gRPC makes UNKNOWN of it. */
            call.end(grpc::StatusCode::UNKNOWN, RAISED);
        }
    } serves(call);
    call.hook(BEFORE_COMPONENT);
    grpc::Status status = handler();
    call.hook(AFTER_COMPONENT);
    /* Asking polls the call's completion queue, which costs as much as the rest of a small call. So a handler that
     * was quick, and in time, is not asked about: its client may have left, but hardly before. */
    bool late = context->deadline() <= std::chrono::system_clock::now();
    if ((late || call.ticks() > kQuick) && context->IsCancelled()) {
        call.end(late ? grpc::StatusCode::DEADLINE_EXCEEDED : grpc::StatusCode::CANCELLED,
                 late ? DEADLINE : LEFT);
    } else {
        call.hook(BEFORE_REPLY_ONLY);
        if (response != nullptr && status.ok()) call.message(response, false, true);
        call.hook(AFTER_REPLY_ONLY);
        call.end(status.error_code());
    }
    return status;
}

}  // namespace fettle_rpc

#endif
