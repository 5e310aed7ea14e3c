// Owners of OpenSSL's objects.
#pragma once

#include <memory>

namespace ds {

/// OpensslPointer<X509, X509_free>: frees what it owns.
template <auto Free>
struct OpensslFreer {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
template <class T, auto Free>
using OpensslPointer = std::unique_ptr<T, OpensslFreer<Free>>;

}  // namespace ds
