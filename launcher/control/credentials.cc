#include "launcher/control/credentials.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdint>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/site/openssl_pointer.h"

namespace ds {
namespace {

using Key = OpensslPointer<EVP_PKEY, EVP_PKEY_free>;
using Certificate = OpensslPointer<X509, X509_free>;
using Extension = OpensslPointer<X509_EXTENSION, X509_EXTENSION_free>;
using Memory = OpensslPointer<BIO, BIO_free_all>;

void Check(bool ok, const char* what) {
  if (ok) return;
  char reason[256];
  ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
  throw RuntimeError(std::string("cannot make credentials: ") + what + ": " + reason);
}

std::string Text(const Memory& memory) {
  char* data = nullptr;
  long size = BIO_get_mem_data(memory.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string Pem(X509* certificate) {
  Memory memory(BIO_new(BIO_s_mem()));
  Check(memory && PEM_write_bio_X509(memory.get(), certificate) == 1, "encoding a certificate");
  return Text(memory);
}

std::string Pem(EVP_PKEY* key) {
  Memory memory(BIO_new(BIO_s_secmem()));
  Check(memory && PEM_write_bio_PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
        "encoding a key");
  return Text(memory);
}

void Add(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  Check(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "adding an extension");
}

Certificate NewCertificate(EVP_PKEY* key, const std::string& common_name, int days) {
  Certificate certificate(X509_new());
  Check(certificate != nullptr, "allocating a certificate");
  X509* x = certificate.get();
  uint64_t serial = 0;
  Check(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "drawing a serial number");
  Check(X509_set_version(x, 2) == 1 && ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1) == 1 &&
            X509_gmtime_adj(X509_getm_notBefore(x), -24L * 3600) && X509_gmtime_adj(X509_getm_notAfter(x), 0) &&
            X509_time_adj_ex(X509_getm_notAfter(x), days, 0, nullptr) && X509_set_pubkey(x, key) == 1,
        "filling a certificate in");
  Check(X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                                   reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0) == 1,
        "naming a certificate");
  return certificate;
}

}  // namespace

struct JobAuthority::Impl {
  Key key;
  Certificate certificate;
  std::string pem;
};

JobAuthority::JobAuthority() : JobAuthority("DeepShard job authority", 400) {}

JobAuthority::JobAuthority(const std::string& name, int days) : impl_(std::make_unique<Impl>()) {
  impl_->key.reset(EVP_EC_gen("P-256"));
  Check(impl_->key != nullptr, "making a P-256 key");
  impl_->certificate = NewCertificate(impl_->key.get(), name, days);
  X509* x = impl_->certificate.get();
  Check(X509_set_issuer_name(x, X509_get_subject_name(x)) == 1, "naming the issuer");
  Add(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  Add(x, x, NID_key_usage, "critical,keyCertSign");
  Add(x, x, NID_subject_key_identifier, "hash");
  Check(X509_sign(x, impl_->key.get(), EVP_sha256()) > 0, "signing the authority's certificate");
  impl_->pem = Pem(x);
}

JobAuthority::JobAuthority(const std::string& certificate, const std::string& private_key)
    : impl_(std::make_unique<Impl>()) {
  Memory pem(BIO_new_mem_buf(certificate.data(), static_cast<int>(certificate.size())));
  Memory key(BIO_new_mem_buf(private_key.data(), static_cast<int>(private_key.size())));
  const auto no_password = [](char*, int, int, void*) { return 0; };
  impl_->certificate.reset(PEM_read_bio_X509(pem.get(), nullptr, no_password, nullptr));
  Check(impl_->certificate != nullptr, "reading the authority's certificate");
  impl_->key.reset(PEM_read_bio_PrivateKey(key.get(), nullptr, no_password, nullptr));
  Check(impl_->key != nullptr, "reading the authority's key");
  impl_->pem = Pem(impl_->certificate.get());
}

JobAuthority::~JobAuthority() = default;

std::string JobAuthority::private_key() const { return Pem(impl_->key.get()); }

const std::string& JobAuthority::certificate() const { return impl_->pem; }

Credentials JobAuthority::Issue(const std::string& name, int days) const {
  Key key(EVP_EC_gen("P-256"));
  Check(key != nullptr, "making a P-256 key");
  // A common name holds 64 characters at most; what is checked is the alternative name.
  Certificate certificate = NewCertificate(key.get(), name.substr(0, 64), days);
  X509 *x = certificate.get(), *issuer = impl_->certificate.get();
  Check(X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1, "naming the issuer");
  Add(x, issuer, NID_basic_constraints, "critical,CA:FALSE");
  Add(x, issuer, NID_key_usage, "critical,digitalSignature");
  Add(x, issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  Add(x, issuer, NID_subject_alt_name, "DNS:" + name);
  Check(X509_sign(x, impl_->key.get(), EVP_sha256()) > 0, "signing a certificate");
  return {Pem(x), Pem(key.get())};
}

}  // namespace ds
