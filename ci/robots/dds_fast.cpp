// A robot on eProsima Fast DDS, with the names that ROS 2 gives things: /chatter at 100 Hz, a /tf_static that is sent once, a
// cloud of 1 MB at 10 Hz, and /own, whose type only its node describes. Messages are bytes, as rmw_fastrtps writes them.
//
// usage: dds_fast SECONDS HASH    HASH: of robot_msgs/msg/Own
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>

using namespace eprosima::fastdds::dds;
using Bytes = std::vector<unsigned char>;

// A message that is bytes already.
class Raw : public TopicDataType {
public:
    explicit Raw(const char* name) {
        setName(name);
        m_typeSize = 4 << 20;
        m_isGetKeyDefined = false;
    }
    bool serialize(void* data, eprosima::fastrtps::rtps::SerializedPayload_t* payload) override {
        const Bytes& bytes = *static_cast<Bytes*>(data);
        payload->encapsulation = CDR_LE;
        payload->length = static_cast<uint32_t>(bytes.size());
        std::memcpy(payload->data, bytes.data(), bytes.size());
        return true;
    }
    bool deserialize(eprosima::fastrtps::rtps::SerializedPayload_t* payload, void* data) override {
        static_cast<Bytes*>(data)->assign(payload->data, payload->data + payload->length);
        return true;
    }
    std::function<uint32_t()> getSerializedSizeProvider(void* data) override {
        return [data] { return static_cast<uint32_t>(static_cast<Bytes*>(data)->size()); };
    }
    void* createData() override { return new Bytes(); }
    void deleteData(void* data) override { delete static_cast<Bytes*>(data); }
    bool getKey(void*, eprosima::fastrtps::rtps::InstanceHandle_t*, bool) override { return false; }
};

// CDR, from front to back.
struct Cdr {
    Bytes bytes{0, 1, 0, 0};
    void align(size_t size) { while ((bytes.size() - 4) % size) bytes.push_back(0); }
    template <typename T> void put(T value) {
        align(sizeof(T));
        unsigned char raw[sizeof(T)];
        std::memcpy(raw, &value, sizeof(T));
        bytes.insert(bytes.end(), raw, raw + sizeof(T));
    }
    void text(const std::string& value) {
        put<uint32_t>(static_cast<uint32_t>(value.size()) + 1);
        bytes.insert(bytes.end(), value.begin(), value.end());
        bytes.push_back(0);
    }
};

static DataWriter* writer(
    DomainParticipant* participant, Publisher* publisher, const char* topic, const char* type, bool latched, const std::string& told = "") {
    TypeSupport support(new Raw(type));
    support.register_type(participant);
    DataWriterQos qos = DATAWRITER_QOS_DEFAULT;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.durability().kind = latched ? TRANSIENT_LOCAL_DURABILITY_QOS : VOLATILE_DURABILITY_QOS;
    qos.history().kind = KEEP_LAST_HISTORY_QOS;
    qos.history().depth = latched ? 1 : 10;
    qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::DYNAMIC_RESERVE_MEMORY_MODE;
    qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;
    qos.user_data().setValue(std::vector<eprosima::fastrtps::rtps::octet>(told.begin(), told.end()));
    Topic* made = participant->create_topic(topic, type, TOPIC_QOS_DEFAULT);
    return made ? publisher->create_datawriter(made, qos) : nullptr;
}

// The node /base/driver, which is asked what its types are made of, and replies as rmw_fastrtps does: what a reply belongs to is
// told beside it.
struct Describer {
    DataReader* requests = nullptr;
    DataWriter* replies = nullptr;

    Describer(DomainParticipant* participant, Publisher* publisher) {
        const char* kind = "type_description_interfaces::srv::dds_::GetTypeDescription_Request_";
        TypeSupport support(new Raw(kind));
        support.register_type(participant);
        Topic* topic = participant->create_topic("rq/base/driver/get_type_descriptionRequest", kind, TOPIC_QOS_DEFAULT);
        DataReaderQos qos = DATAREADER_QOS_DEFAULT;
        qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
        qos.history().depth = 10;
        qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::DYNAMIC_RESERVE_MEMORY_MODE;
        Subscriber* subscriber = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
        if (topic && subscriber) requests = subscriber->create_datareader(topic, qos);
        replies = writer(
            participant, publisher, "rr/base/driver/get_type_descriptionReply",
            "type_description_interfaces::srv::dds_::GetTypeDescription_Response_", false);
    }

    void answer() {
        Bytes request;
        SampleInfo info;
        while (requests->take_next_sample(&request, &info) == ReturnCode_t::RETCODE_OK) {
            if (!info.valid_data) continue;
            Cdr cdr;
            cdr.put<uint8_t>(1);
            cdr.text("");
            cdr.text("robot_msgs/msg/Own");
            cdr.put<uint32_t>(1);
            cdr.text("number");
            cdr.put<uint8_t>(6);
            cdr.put<uint64_t>(0);
            cdr.put<uint64_t>(0);
            cdr.text("");
            cdr.text("");
            for (int list = 0; list < 3; ++list) cdr.put<uint32_t>(0);
            eprosima::fastrtps::rtps::WriteParams beside;
            beside.related_sample_identity() = info.sample_identity;
            const auto& reader = info.related_sample_identity.writer_guid();
            if (reader != eprosima::fastrtps::rtps::GUID_t::unknown()) beside.related_sample_identity().writer_guid() = reader;
            replies->write(&cdr.bytes, beside);
        }
    }
};

int main(int argc, char** argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 10.0;
    DomainParticipantQos qos = PARTICIPANT_QOS_DEFAULT;
    DomainParticipant* participant = DomainParticipantFactory::get_instance()->create_participant(0, qos);
    Publisher* publisher = participant ? participant->create_publisher(PUBLISHER_QOS_DEFAULT) : nullptr;
    if (!publisher) return 1;
    DataWriter* words = writer(participant, publisher, "rt/chatter", "std_msgs::msg::dds_::String_", false);
    DataWriter* fixed = writer(participant, publisher, "rt/tf_static", "tf2_msgs::msg::dds_::TFMessage_", true);
    DataWriter* bulk = writer(participant, publisher, "rt/bulk", "std_msgs::msg::dds_::UInt8MultiArray_", false);
    DataWriter* own = writer(
        participant, publisher, "rt/own", "robot_msgs::msg::dds_::Own_", false, std::string("typehash=") + (argc > 2 ? argv[2] : "") + ";");
    Describer describer(participant, publisher);
    if (!words || !fixed || !bulk || !own || !describer.requests || !describer.replies) return 1;
    Cdr transform;
    transform.put<uint32_t>(1);
    transform.put<int32_t>(7);
    transform.put<uint32_t>(0);
    transform.text("base");
    transform.text("lidar");
    for (double value : {1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0}) transform.put<double>(value);
    fixed->write(&transform.bytes);
    std::puts("ready");
    std::fflush(stdout);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (unsigned number = 0; std::chrono::steady_clock::now() < end; ++number) {
        Cdr word;
        word.text("word " + std::to_string(number));
        words->write(&word.bytes);
        Cdr counted;
        counted.put<int32_t>(static_cast<int32_t>(number));
        own->write(&counted.bytes);
        describer.answer();
        if (number % 10 == 0) {
            Cdr array;
            array.put<uint32_t>(0);
            array.put<uint32_t>(number / 10);
            array.put<uint32_t>(1000000);
            array.bytes.insert(array.bytes.end(), 1000000, static_cast<unsigned char>(number / 10 % 251));
            bulk->write(&array.bytes);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
}
