// What an X.509 certificate says, for checks and messages before and after TLS has its say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ds {

struct CertificateFacts {
  std::vector<std::string> names;         ///< DNS names
  int64_t not_before = 0, not_after = 0;  ///< Unix seconds
  std::string fingerprint;                ///< the first 16 hexadecimal digits of its SHA-256
  std::string NamesText() const;          ///< "a, b"; "no name"
};

/// Of the first certificate in PEM text. Throws UsageError("not a certificate ...") without the place.
CertificateFacts ReadCertificate(const std::string& pem);
/// Of a certificate in DER.
CertificateFacts ReadCertificateDer(const unsigned char* bytes, long size);

/// Whether the key of `authority` signed `certificate`; both PEM. False where either cannot be read.
bool IsIssuedBy(const std::string& certificate, const std::string& authority);
/// Whether `key` is the private key of `certificate`; both PEM.
bool KeyFits(const std::string& certificate, const std::string& key);

/// "2026-12-01 03:56:32 UTC"
std::string DateText(int64_t unix_seconds);

}  // namespace ds
