// A certificate authority for one job, made when it starts and gone when it ends. Keys are P-256 and live in memory;
// they leave this process only through a bootstrap's private channel.
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
  ~JobAuthority();

  /// PEM; what the other end is checked against.
  const std::string& certificate() const;

  /// A key and a certificate for `name` (a DNS name, proto/names.h), good for servers and clients. Valid from a day
  /// ago, so that clocks may differ, for `days`.
  Credentials Issue(const std::string& name, int days = 400) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
