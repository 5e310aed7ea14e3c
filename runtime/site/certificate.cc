#include "runtime/site/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/site/openssl_pointer.h"

namespace ds {
namespace {

using Certificate = OpensslPointer<X509, X509_free>;
using Key = OpensslPointer<EVP_PKEY, EVP_PKEY_free>;
using Memory = OpensslPointer<BIO, BIO_free_all>;
using GeneralNames = OpensslPointer<GENERAL_NAMES, GENERAL_NAMES_free>;

Memory Wrap(const std::string& text) { return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

/// Never asks at a terminal: an encrypted key is an unreadable one.
int NoPassword(char*, int, int, void*) { return 0; }

Certificate Parse(const std::string& pem) {
  Memory memory = Wrap(pem);
  Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  return certificate;
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(::timegm(&parts)) : 0;
}

CertificateFacts FactsOf(X509* certificate) {
  CertificateFacts facts;
  GeneralNames names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS) continue;
    facts.names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                             static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
  }
  facts.not_before = UnixSeconds(X509_get0_notBefore(certificate));
  facts.not_after = UnixSeconds(X509_get0_notAfter(certificate));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest, &size) == 1) {
    for (unsigned i = 0; i < 8; ++i) {
      facts.fingerprint += "0123456789abcdef"[digest[i] >> 4];
      facts.fingerprint += "0123456789abcdef"[digest[i] & 15];
    }
  }
  return facts;
}

}  // namespace

std::string CertificateFacts::NamesText() const { return names.empty() ? "no name" : Shown(Join(names, ", "), 200); }

CertificateFacts ReadCertificate(const std::string& pem) {
  Certificate certificate = Parse(pem);
  if (!certificate) throw UsageError("not a certificate in PEM");
  return FactsOf(certificate.get());
}

CertificateFacts ReadCertificateDer(const unsigned char* bytes, long size) {
  Certificate certificate(d2i_X509(nullptr, &bytes, size));
  ERR_clear_error();
  if (!certificate) throw UsageError("not a certificate");
  return FactsOf(certificate.get());
}

bool IsIssuedBy(const std::string& certificate, const std::string& authority) {
  Certificate leaf = Parse(certificate), issuer = Parse(authority);
  const bool good = leaf && issuer && X509_verify(leaf.get(), X509_get0_pubkey(issuer.get())) == 1;
  ERR_clear_error();
  return good;
}

bool KeyFits(const std::string& certificate, const std::string& key_text) {
  Certificate leaf = Parse(certificate);
  Memory memory = Wrap(key_text);
  Key key(PEM_read_bio_PrivateKey(memory.get(), nullptr, NoPassword, nullptr));
  const bool good = leaf && key && X509_check_private_key(leaf.get(), key.get()) == 1;
  ERR_clear_error();
  return good;
}

std::string DateText(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

}  // namespace ds
