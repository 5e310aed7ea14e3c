#include "launcher/bootstrap/daemon_trouble.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/job/hostfile.h"

namespace ds {
namespace {

constexpr int kSeconds = 5;

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};

struct Socket {
  int fd = -1;
  std::string trouble;  ///< why there is none
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
};

/// Errno of connecting within kSeconds.
int Connect(int fd, const addrinfo& to) {
  if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait{fd, POLLOUT, 0};
  if (::poll(&wait, 1, kSeconds * 1000) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

void Dial(const std::string& host, uint16_t port, Socket& socket) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    socket.trouble = std::string("its name cannot be resolved: ") + ::gai_strerror(error);
    return;
  }
  int error = EADDRNOTAVAIL;
  for (addrinfo* i = found; i; i = i->ai_next) {
    const int fd = ::socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    error = Connect(fd, *i);
    if (error == 0) {
      socket.fd = fd;
      break;
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  if (error == ECONNREFUSED) {
    socket.trouble = "no daemon listens there (connection refused): start it (ds-agent --daemon) on that host";
  } else if (error != 0) {
    socket.trouble = std::string("it cannot be reached: ") + std::strerror(error);
  }
}

/// The certificate that answers, whatever it is; nothing: it is no TLS server of ours.
std::optional<std::string> CertificateOf(int fd, const std::string& name) {
  std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  std::unique_ptr<SSL, Freer<SSL_free>> ssl(context ? SSL_new(context.get()) : nullptr);
  if (!ssl) return std::nullopt;
  SSL_set_tlsext_host_name(ssl.get(), name.c_str());
  SSL_set_fd(ssl.get(), fd);
  const auto until = std::time(nullptr) + kSeconds;
  for (int result; (result = SSL_connect(ssl.get())) != 1;) {
    const int want = SSL_get_error(ssl.get(), result);
    if (want != SSL_ERROR_WANT_READ && want != SSL_ERROR_WANT_WRITE) break;
    pollfd wait{fd, static_cast<short>(want == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    if (std::time(nullptr) > until || ::poll(&wait, 1, kSeconds * 1000) <= 0) break;
  }
  ERR_clear_error();
  std::unique_ptr<X509, Freer<X509_free>> certificate(SSL_get1_peer_certificate(ssl.get()));
  if (!certificate) return std::nullopt;
  unsigned char* der = nullptr;
  const int size = i2d_X509(certificate.get(), &der);
  if (size <= 0) return std::nullopt;
  std::string bytes(reinterpret_cast<char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return bytes;
}

bool IssuedBy(const std::string& der, const std::string& authority) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  std::unique_ptr<X509, Freer<X509_free>> leaf(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
  std::unique_ptr<BIO, Freer<BIO_free_all>> text(BIO_new_mem_buf(authority.data(), static_cast<int>(authority.size())));
  std::unique_ptr<X509, Freer<X509_free>> issuer(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  const bool good = leaf && issuer && X509_verify(leaf.get(), X509_get0_pubkey(issuer.get())) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace

std::string DaemonTrouble(const std::string& host, uint16_t port, const Identity& own, const std::string& what_failed) {
  const std::string where = Bracketed(host) + ":" + std::to_string(port);
  Socket socket;
  Dial(host, port, socket);
  if (socket.fd < 0) return where + ": " + socket.trouble;
  const std::optional<std::string> der = CertificateOf(socket.fd, SiteNodeName(host));
  if (!der) {
    return where + ": what listens there is no DeepShard daemon, or a crowd holds its door (" +
           Shown(what_failed, 300) + "): is the port right (launch.daemon_port, `port` in the site file)?";
  }
  const CertificateFacts facts =
      ReadCertificateDer(reinterpret_cast<const unsigned char*>(der->data()), static_cast<long>(der->size()));
  if (!IssuedBy(*der, own.ca_certificate)) {
    return where + ": the daemon there has another site identity (its certificate, " + facts.fingerprint + " for " +
           facts.NamesText() + ", is not of our authority " + own.ca_facts.fingerprint +
           "): another user's, or from before the identity was made anew; copy DIR/nodes/" + host + " there again";
  }
  const int64_t now = std::time(nullptr);
  if (now > facts.not_after) {
    return where + ": the daemon's certificate expired on " + DateText(facts.not_after) +
           ": renew it (ds-launch --make-identity DIR), copy it there and restart the daemon";
  }
  if (now < facts.not_before) {
    return where + ": the daemon's certificate is not valid before " + DateText(facts.not_before) +
           ", and here it is " + DateText(now) + ": are both clocks right?";
  }
  if (std::find(facts.names.begin(), facts.names.end(), SiteNodeName(host)) == facts.names.end()) {
    return where + ": the daemon there has the identity of another node: its certificate is for " + facts.NamesText() +
           ", not " + SiteNodeName(host) + "; copy DIR/nodes/" + host +
           " there, or write the host as it was written when the identity was made";
  }
  return where + ": " + Shown(what_failed, 300);
}

}  // namespace ds
