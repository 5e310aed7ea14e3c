#include "proto/channel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "proto/version.h"

namespace ds {
namespace {

constexpr int kPingEveryMs = 10'000;
constexpr int kMaxStreams = 4096;  // of a connection: each worker of a node may wait for a few keys of the store
constexpr int kMaxMetadataBytes = 8 << 10;

grpc::ChannelArguments Arguments(double silence_seconds) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, std::max(1000, static_cast<int>(silence_seconds * 1000)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Each channel has connections of its own: nothing is shared behind the back of two jobs in one process.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

void PrepareGrpc() {
  ::setenv("GRPC_ENABLE_FORK_SUPPORT", "0", 1);
  ::setenv("GRPC_VERBOSITY", "NONE", 0);  // our messages name what failed; gRPC's own log stays available on request
}

std::shared_ptr<grpc::Channel> SecureChannel(const std::string& address, const std::string& server_name,
                                             const TlsIdentity& identity, double silence_seconds) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = identity.ca_certificate;
  options.pem_cert_chain = identity.certificate;
  options.pem_private_key = identity.private_key;
  grpc::ChannelArguments arguments = Arguments(silence_seconds);
  arguments.SetSslTargetNameOverride(server_name);
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), arguments);
}

/// A URI: bytes that mean something there, or are none of its characters, are written %XX (RFC 3986).
std::string LocalAddress(const std::string& path) {
  std::string out = "unix:";
  for (const char c : path) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("/._-~").find(c) != std::string_view::npos;
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(c));
    out += plain ? std::string(1, c) : code;
  }
  return out;
}

std::shared_ptr<grpc::Channel> LocalChannel(const std::string& socket_path) {
  return grpc::CreateCustomChannel(LocalAddress(socket_path), grpc::InsecureChannelCredentials(), Arguments(60));
}

std::shared_ptr<grpc::ServerCredentials> MutualTls(const TlsIdentity& identity) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = identity.ca_certificate;
  options.pem_key_cert_pairs.push_back({identity.private_key, identity.certificate});
  return grpc::SslServerCredentials(options);
}

void SetServerOptions(grpc::ServerBuilder& builder, double silence_seconds) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, std::max(1000, static_cast<int>(silence_seconds * 1000)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingEveryMs / 4);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port is ours alone
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
}

}  // namespace ds
