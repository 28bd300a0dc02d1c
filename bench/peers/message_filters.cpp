// Debian's message_filters behind plain C functions: the cache, and the approximate-time and exact-time policies.
// Messages are 64 bytes with a stamp, one allocation each, as on our side.
#include <message_filters/cache.h>
#include <message_filters/simple_filter.h>
#include <message_filters/sync_policies/approximate_time.h>
#include <message_filters/sync_policies/exact_time.h>
#include <message_filters/synchronizer.h>
#include <ros/ros.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

struct Sample {
    ros::Time stamp;
    uint64_t id;
    uint64_t body[6];
};
typedef boost::shared_ptr<Sample const> SamplePtr;

namespace ros::message_traits {
template <> struct HasHeader<Sample> : TrueType {};
template <> struct TimeStamp<Sample> {
    static ros::Time value(const Sample& sample) { return sample.stamp; }
};
template <> struct IsMessage<Sample> : TrueType {};
template <> struct DataType<Sample> { static const char* value() { return "asof/Sample"; } static const char* value(const Sample&) { return value(); } };
template <> struct MD5Sum<Sample> { static const char* value() { return "0"; } static const char* value(const Sample&) { return value(); } };
}  // namespace ros::message_traits

static ros::Time time_of(int64_t nanos) {
    return ros::Time(static_cast<uint32_t>(nanos / 1000000000), static_cast<uint32_t>(nanos % 1000000000));
}

static int64_t nanos_of(const ros::Time& time) { return int64_t(time.sec) * 1000000000 + time.nsec; }

static SamplePtr sample(int64_t nanos, uint64_t id) {
    boost::shared_ptr<Sample> made = boost::make_shared<Sample>();
    made->stamp = time_of(nanos);
    made->id = id;
    return made;
}

static double thread_nanos() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static ros::MessageEvent<Sample const> event(const SamplePtr& sample) {
    // The receipt time is given, so that no clock is read, which makes message_filters faster.
    return ros::MessageEvent<Sample const>(sample, sample->stamp);
}

extern "C" {

// libstdc++ leaves out atomics in a process with one thread; a node has several.
void mf_keep_a_thread() {
    std::thread([] { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
}

typedef message_filters::Cache<Sample> Cache;

void* mf_cache_new(uint32_t capacity) { return new Cache(capacity); }
void mf_cache_free(void* cache) { delete static_cast<Cache*>(cache); }

// Adds all, returns nanoseconds of thread time.
double mf_cache_add(void* cache, const int64_t* stamps, size_t count) {
    Cache& c = *static_cast<Cache*>(cache);
    double start = thread_nanos();
    for (size_t i = 0; i < count; i++) c.add(event(sample(stamps[i], i)));
    return thread_nanos() - start;
}

double mf_cache_before(void* cache, const int64_t* stamps, size_t count, uint64_t* sum) {
    Cache& c = *static_cast<Cache*>(cache);
    double start = thread_nanos();
    for (size_t i = 0; i < count; i++) {
        SamplePtr found = c.getElemBeforeTime(time_of(stamps[i]));
        if (found) *sum += found->stamp.nsec;
    }
    return thread_nanos() - start;
}

double mf_cache_interval(void* cache, const int64_t* starts, const int64_t* ends, size_t count, uint64_t* sum) {
    Cache& c = *static_cast<Cache*>(cache);
    double start = thread_nanos();
    for (size_t i = 0; i < count; i++) *sum += c.getInterval(time_of(starts[i]), time_of(ends[i])).size();
    return thread_nanos() - start;
}

// What the cache says for all of these, as an order-sensitive hash over the ids: 0 before, 1 after, 2 interval,
// 3 surrounding interval, 4 oldest and latest time.
uint64_t mf_cache_ask(void* cache, uint32_t kind, const int64_t* starts, const int64_t* ends, size_t count) {
    Cache& c = *static_cast<Cache*>(cache);
    uint64_t hash = 1469598103934665603ull;
    auto fold = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
    auto one = [&fold](const SamplePtr& found) { fold(found ? found->id : ~0ull); };
    auto many = [&fold](const std::vector<SamplePtr>& found) {
        fold(found.size());
        for (const SamplePtr& sample : found) fold(sample->id);
    };
    for (size_t i = 0; i < count; i++) {
        ros::Time start = time_of(starts[i]), end = time_of(ends[i]);
        switch (kind) {
            case 0: one(c.getElemBeforeTime(start)); break;
            case 1: one(c.getElemAfterTime(start)); break;
            case 2: many(c.getInterval(start, end)); break;
            case 3: many(c.getSurroundingInterval(start, end)); break;
            case 4: fold(nanos_of(c.getOldestTime())); fold(nanos_of(c.getLatestTime())); break;
        }
    }
    return hash;
}

// Approximate time over `topics` (2 to 9) streams. Messages arrive in the order given; every set is folded into an
// order-sensitive hash of the ids. Returns nanoseconds of thread time; fills sets and hash.
struct Result {
    uint64_t sets;
    uint64_t hash;
};

struct Sink {
    Result result{0, 1469598103934665603ull};
    void fold(uint64_t value) { result.hash = (result.hash ^ value) * 1099511628211ull; }
};
}

template <int N> struct Streams;

#define ASOF_POLICY(N, ...)                                                                                            \
    template <> struct Streams<N> {                                                                                    \
        typedef message_filters::sync_policies::ApproximateTime<__VA_ARGS__> Policy;                                   \
        typedef message_filters::sync_policies::ExactTime<__VA_ARGS__> Exact;                                          \
    };
ASOF_POLICY(2, Sample, Sample)
ASOF_POLICY(3, Sample, Sample, Sample)
ASOF_POLICY(4, Sample, Sample, Sample, Sample)
ASOF_POLICY(5, Sample, Sample, Sample, Sample, Sample)
ASOF_POLICY(6, Sample, Sample, Sample, Sample, Sample, Sample)
ASOF_POLICY(7, Sample, Sample, Sample, Sample, Sample, Sample, Sample)
ASOF_POLICY(8, Sample, Sample, Sample, Sample, Sample, Sample, Sample, Sample)
ASOF_POLICY(9, Sample, Sample, Sample, Sample, Sample, Sample, Sample, Sample, Sample)

// Called with nine pointers, those of absent topics to nothing.
struct Fold {
    typedef void result_type;
    Sink* sink;
    void one(const SamplePtr& s) const { sink->fold(s->id); }
    template <class Other> void one(const Other&) const {}
    template <class... P> void operator()(const P&... p) const {
        (one(p), ...);
        sink->result.sets++;
    }
};

// The same for what an exact-time policy drops: a sum, since a set is dropped at once and a message at a time here.
struct FoldDrops {
    typedef void result_type;
    uint64_t* drops;
    void one(const SamplePtr& s) const { if (s) *drops += s->id + 1; }
    template <class Other> void one(const Other&) const {}
    template <class... P> void operator()(const P&... p) const { (one(p), ...); }
};

template <class Sync, int I, int N>
static void add_to(Sync& sync, uint8_t topic, const ros::MessageEvent<Sample const>& e) {
    if (topic == I) {
        sync.template add<I>(e);
        return;
    }
    if constexpr (I + 1 < N) add_to<Sync, I + 1, N>(sync, topic, e);
}

template <int N>
static void run_exact(uint32_t queue, const uint8_t* topics, const int64_t* stamps, size_t count, Sink& sink, uint64_t& drops) {
    typedef typename Streams<N>::Exact Policy;
    typedef message_filters::Synchronizer<Policy> Sync;
    Policy policy(queue);
    Sync sync(policy);
    Fold fold{&sink};
    sync.registerCallback(fold);
    FoldDrops fold_drops{&drops};
    sync.getPolicy()->registerDropCallback(fold_drops);
    for (size_t i = 0; i < count; i++) add_to<Sync, 0, N>(sync, topics[i], event(sample(stamps[i], i)));
}

extern "C" void mf_exact(uint32_t topics_count, uint32_t queue, const uint8_t* topics, const int64_t* stamps, size_t count,
                         Result* result, uint64_t* drops) {
    Sink sink;
    *drops = 0;
#define ASOF_EXACT(N) case N: run_exact<N>(queue, topics, stamps, count, sink, *drops); break;
    switch (topics_count) {
        ASOF_EXACT(2) ASOF_EXACT(3) ASOF_EXACT(4) ASOF_EXACT(5) ASOF_EXACT(6) ASOF_EXACT(7) ASOF_EXACT(8) ASOF_EXACT(9)
    }
    *result = sink.result;
}

template <int N>
static double run(uint32_t queue, double penalty, int64_t max_interval, const int64_t* lower_bounds, const uint8_t* topics,
                  const int64_t* stamps, size_t count, Sink& sink) {
    typedef typename Streams<N>::Policy Policy;
    Policy policy(queue);
    message_filters::Synchronizer<Policy> sync(policy);
    sync.setAgePenalty(penalty);
    if (max_interval >= 0) {
        sync.setMaxIntervalDuration(ros::Duration(int32_t(max_interval / 1000000000), int32_t(max_interval % 1000000000)));
    }
    for (int i = 0; i < N; i++) {
        sync.setInterMessageLowerBound(i, ros::Duration(int32_t(lower_bounds[i] / 1000000000), int32_t(lower_bounds[i] % 1000000000)));
    }
    Fold fold{&sink};
    sync.registerCallback(fold);
    double start = thread_nanos();
    for (size_t i = 0; i < count; i++) {
        ros::MessageEvent<Sample const> e = event(sample(stamps[i], i));
        switch (topics[i]) {
            case 0: sync.template add<0>(e); break;
            case 1: sync.template add<1>(e); break;
            case 2: if constexpr (N > 2) sync.template add<2>(e); break;
            case 3: if constexpr (N > 3) sync.template add<3>(e); break;
            case 4: if constexpr (N > 4) sync.template add<4>(e); break;
            case 5: if constexpr (N > 5) sync.template add<5>(e); break;
            case 6: if constexpr (N > 6) sync.template add<6>(e); break;
            case 7: if constexpr (N > 7) sync.template add<7>(e); break;
            case 8: if constexpr (N > 8) sync.template add<8>(e); break;
        }
    }
    return thread_nanos() - start;
}

extern "C" double mf_approximate(uint32_t topics_count, uint32_t queue, double penalty, int64_t max_interval,
                                 const int64_t* lower_bounds, const uint8_t* topics, const int64_t* stamps, size_t count,
                                 Result* result) {
    Sink sink;
    double nanos = -1;
#define ASOF_CASE(N) case N: nanos = run<N>(queue, penalty, max_interval, lower_bounds, topics, stamps, count, sink); break;
    switch (topics_count) {
        ASOF_CASE(2) ASOF_CASE(3) ASOF_CASE(4) ASOF_CASE(5) ASOF_CASE(6) ASOF_CASE(7) ASOF_CASE(8) ASOF_CASE(9)
    }
    *result = sink.result;
    return nanos;
}
