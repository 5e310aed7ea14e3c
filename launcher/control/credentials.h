// A certificate authority: for one job, made when it starts and gone when it ends, its keys (P-256) in memory, whence
// they leave only through a bootstrap's private channel; or of a user's site, kept in files (site_identity.h).
#pragma once

#include <memory>
#include <string>

namespace ds {

/// PEM text.
struct Credentials {
  std::string certificate, private_key;
};

class JobAuthority {
 public:
  /// Throws RuntimeError when OpenSSL fails.
  JobAuthority();
  /// One that signs for `days`.
  JobAuthority(const std::string& name, int days);
  /// One that was made before. Throws RuntimeError where the two are not PEM.
  JobAuthority(const std::string& certificate, const std::string& private_key);
  ~JobAuthority();

  /// PEM; what the other end is checked against.
  const std::string& certificate() const;
  /// PEM.
  std::string private_key() const;

  /// A key and a certificate for `name` (a DNS name, proto/names.h), good for servers and clients. Valid from a day
  /// ago, so that clocks may differ, for `days`.
  Credentials Issue(const std::string& name, int days = 400) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
