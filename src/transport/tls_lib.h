/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSL 3, opened when the first encrypted line is made, and only then: a program that uses none
 * needs none, and building needs none of its headers.
 *
 * Its names are for us alone (RTLD_LOCAL, its own symbols first): the program may have an OpenSSL
 * of its own, another version even. If it is the same file, it is the same library, and what we
 * switch there is switched for the program too. So the configuration file is read as always, for
 * whoever uses the library's defaults: we have a library context of our own, and set all that
 * matters in it. One switch is ours, if we are the first to use the library: it frees nothing at
 * exit, when our threads may still be sending.
 */
#ifndef TOW_TRANSPORT_TLS_LIB_H
#define TOW_TRANSPORT_TLS_LIB_H

#include <stddef.h>
#include <stdint.h>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct ssl_session_st SSL_SESSION;
typedef struct ssl_cipher_st SSL_CIPHER;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;
typedef struct evp_cipher_st EVP_CIPHER;
typedef struct evp_cipher_ctx_st EVP_CIPHER_CTX;
typedef struct engine_st ENGINE;
typedef struct x509_st X509;
typedef struct X509_pubkey_st X509_PUBKEY;
typedef struct X509_name_st X509_NAME;
typedef struct X509_name_entry_st X509_NAME_ENTRY;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct evp_md_st EVP_MD;
typedef struct bignum_st BIGNUM;
typedef struct asn1_string_st ASN1_INTEGER;
typedef struct asn1_string_st ASN1_TIME;
typedef struct asn1_string_st ASN1_STRING;
typedef struct x509_store_ctx_st X509_STORE_CTX;
typedef struct X509_VERIFY_PARAM_st X509_VERIFY_PARAM;
typedef struct ossl_lib_ctx_st OSSL_LIB_CTX;
typedef struct ossl_param_st OSSL_PARAM;

typedef void tow_tls_keylog(const SSL *ssl, const char *line);
typedef int tow_tls_psk_find(SSL *ssl, const unsigned char *id, size_t id_size, SSL_SESSION **ret);
typedef int tow_tls_psk_use(SSL *ssl, const void *digest, const unsigned char **ret_id,
                            size_t *ret_id_size, SSL_SESSION **ret);
typedef int tow_tls_password(char *ret, int size, int writing, void *user);

/* What we use of libssl and libcrypto, with the types of OpenSSL's own headers (ssl.h, evp.h). */
#define TOW_TLS_SSL_FUNCTIONS(F)                                                                   \
    F(int, OPENSSL_init_ssl, (uint64_t options, const void *settings))                             \
    F(const SSL_METHOD *, TLS_method, (void))                                                      \
    F(SSL_CTX *, SSL_CTX_new_ex, (OSSL_LIB_CTX *, const char *query, const SSL_METHOD *))          \
    F(void, SSL_CTX_free, (SSL_CTX *))                                                             \
    F(long, SSL_CTX_ctrl, (SSL_CTX *, int command, long number, void *))                           \
    F(uint64_t, SSL_CTX_set_options, (SSL_CTX *, uint64_t options))                                \
    F(int, SSL_CTX_set_ciphersuites, (SSL_CTX *, const char *))                                    \
    F(int, SSL_CTX_set_num_tickets, (SSL_CTX *, size_t))                                           \
    F(void, SSL_CTX_set_security_level, (SSL_CTX *, int))                                          \
    F(void, SSL_CTX_set_verify, (SSL_CTX *, int mode, int (*)(int, void *)))                       \
    F(void, SSL_CTX_set_keylog_callback, (SSL_CTX *, tow_tls_keylog *))                            \
    F(void, SSL_CTX_set_psk_find_session_callback, (SSL_CTX *, tow_tls_psk_find *))                \
    F(void, SSL_CTX_set_psk_use_session_callback, (SSL_CTX *, tow_tls_psk_use *))                  \
    F(void, SSL_CTX_set_cert_verify_callback,                                                      \
      (SSL_CTX *, int (*)(X509_STORE_CTX *, void *), void *))                                      \
    F(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX *, const char *path))                      \
    F(int, SSL_CTX_use_PrivateKey_file, (SSL_CTX *, const char *path, int type))                   \
    F(int, SSL_CTX_check_private_key, (const SSL_CTX *))                                           \
    F(X509 *, SSL_CTX_get0_certificate, (const SSL_CTX *))                                         \
    F(int, SSL_CTX_load_verify_file, (SSL_CTX *, const char *path))                                \
    F(void, SSL_CTX_set_cert_cb, (SSL_CTX *, int (*)(SSL *, void *), void *))                      \
    F(int, SSL_use_certificate, (SSL *, X509 *))                                                   \
    F(int, SSL_use_PrivateKey, (SSL *, EVP_PKEY *))                                                \
    F(int, SSL_check_private_key, (const SSL *))                                                   \
    F(long, SSL_ctrl, (SSL *, int command, long number, void *))                                   \
    F(X509 *, SSL_get1_peer_certificate, (const SSL *))                                            \
    F(X509_VERIFY_PARAM *, SSL_get0_param, (SSL *))                                                \
    F(long, SSL_get_verify_result, (const SSL *))                                                  \
    F(int, SSL_read, (SSL *, void *, int size))                                                    \
    F(int, SSL_write, (SSL *, const void *, int size))                                             \
    F(int, SSL_shutdown, (SSL *))                                                                  \
    F(int, SSL_export_keying_material,                                                             \
      (SSL *, unsigned char *ret, size_t, const char *label, size_t label_size,                    \
       const unsigned char *, size_t, int use_context))                                            \
    F(SSL *, SSL_new, (SSL_CTX *))                                                                 \
    F(void, SSL_free, (SSL *))                                                                     \
    F(void, SSL_set_bio, (SSL *, BIO * in, BIO * out))                                             \
    F(int, SSL_set_ex_data, (SSL *, int index, void *))                                            \
    F(void *, SSL_get_ex_data, (const SSL *, int index))                                           \
    F(void, SSL_set_connect_state, (SSL *))                                                        \
    F(void, SSL_set_accept_state, (SSL *))                                                         \
    F(int, SSL_do_handshake, (SSL *))                                                              \
    F(int, SSL_get_error, (const SSL *, int result))                                               \
    F(int, SSL_session_reused, (const SSL *))                                                      \
    F(const SSL_CIPHER *, SSL_CIPHER_find, (SSL *, const unsigned char number[2]))                 \
    F(SSL_SESSION *, SSL_SESSION_new, (void))                                                      \
    F(void, SSL_SESSION_free, (SSL_SESSION *))                                                     \
    F(int, SSL_SESSION_set1_master_key, (SSL_SESSION *, const unsigned char *key, size_t))         \
    F(int, SSL_SESSION_set_cipher, (SSL_SESSION *, const SSL_CIPHER *))                            \
    F(int, SSL_SESSION_set_protocol_version, (SSL_SESSION *, int))

#define TOW_TLS_CRYPTO_FUNCTIONS(F)                                                                \
    F(int, OPENSSL_init_crypto, (uint64_t options, const void *settings))                          \
    F(OSSL_LIB_CTX *, OSSL_LIB_CTX_new, (void))                                                    \
    F(const BIO_METHOD *, BIO_s_mem, (void))                                                       \
    F(BIO *, BIO_new, (const BIO_METHOD *))                                                        \
    F(BIO *, BIO_new_mem_buf, (const void *, int size))                                            \
    F(int, BIO_free, (BIO *))                                                                      \
    F(int, BIO_read, (BIO *, void *, int size))                                                    \
    F(int, BIO_write, (BIO *, const void *, int size))                                             \
    F(size_t, BIO_ctrl_pending, (BIO *))                                                           \
    F(unsigned long, ERR_get_error, (void))                                                        \
    F(void, ERR_clear_error, (void))                                                               \
    F(int, ERR_set_mark, (void))                                                                   \
    F(int, ERR_pop_to_mark, (void))                                                                \
    F(const char *, ERR_reason_error_string, (unsigned long))                                      \
    F(X509 *, X509_STORE_CTX_get0_cert, (const X509_STORE_CTX *))                                  \
    F(int, X509_STORE_CTX_get_error, (const X509_STORE_CTX *))                                     \
    F(void, X509_STORE_CTX_set_error, (X509_STORE_CTX *, int error))                               \
    F(int, X509_verify_cert, (X509_STORE_CTX *))                                                   \
    F(const char *, X509_verify_cert_error_string, (long error))                                   \
    F(int, X509_VERIFY_PARAM_set1_host, (X509_VERIFY_PARAM *, const char *, size_t))               \
    F(int, X509_VERIFY_PARAM_set1_ip_asc, (X509_VERIFY_PARAM *, const char *))                     \
    F(X509_PUBKEY *, X509_get_X509_PUBKEY, (const X509 *))                                         \
    F(int, i2d_X509_PUBKEY, (const X509_PUBKEY *, unsigned char **))                               \
    F(X509_NAME *, X509_get_subject_name, (const X509 *))                                          \
    F(int, X509_NAME_get_index_by_NID, (const X509_NAME *, int number, int behind))                \
    F(X509_NAME_ENTRY *, X509_NAME_get_entry, (const X509_NAME *, int index))                      \
    F(ASN1_STRING *, X509_NAME_ENTRY_get_data, (const X509_NAME_ENTRY *))                          \
    F(int, ASN1_STRING_type, (const ASN1_STRING *))                                                \
    F(int, ASN1_STRING_length, (const ASN1_STRING *))                                              \
    F(const unsigned char *, ASN1_STRING_get0_data, (const ASN1_STRING *))                         \
    F(void, X509_free, (X509 *))                                                                   \
    F(X509 *, X509_new_ex, (OSSL_LIB_CTX *, const char *query))                                    \
    F(int, X509_set_version, (X509 *, long))                                                       \
    F(ASN1_INTEGER *, X509_get_serialNumber, (X509 *))                                             \
    F(int, ASN1_INTEGER_set_uint64, (ASN1_INTEGER *, uint64_t))                                    \
    F(ASN1_TIME *, X509_getm_notBefore, (const X509 *))                                            \
    F(ASN1_TIME *, X509_getm_notAfter, (const X509 *))                                             \
    F(int, ASN1_TIME_set_string, (ASN1_TIME *, const char *))                                      \
    F(int, X509_NAME_add_entry_by_txt,                                                             \
      (X509_NAME *, const char *field, int type, const unsigned char *, int size, int, int))       \
    F(int, X509_set_issuer_name, (X509 *, const X509_NAME *))                                      \
    F(int, X509_set_pubkey, (X509 *, EVP_PKEY *))                                                  \
    F(int, X509_sign, (X509 *, EVP_PKEY *, const EVP_MD *))                                        \
    F(int, PEM_write_bio_X509, (BIO *, const X509 *))                                              \
    F(int, PEM_write_bio_PrivateKey,                                                               \
      (BIO *, const EVP_PKEY *, const EVP_CIPHER *, const unsigned char *, int, void *, void *))   \
    F(X509 *, PEM_read_bio_X509, (BIO *, X509 **, tow_tls_password *, void *))                     \
    F(EVP_PKEY *, PEM_read_bio_PrivateKey_ex,                                                      \
      (BIO *, EVP_PKEY **, tow_tls_password *, void *, OSSL_LIB_CTX *, const char *query))         \
    F(EVP_PKEY *, EVP_PKEY_Q_keygen, (OSSL_LIB_CTX *, const char *query, const char *type, ...))   \
    F(EVP_PKEY *, X509_get0_pubkey, (const X509 *))                                                \
    F(int, EVP_PKEY_get_bits, (const EVP_PKEY *))                                                  \
    F(int, EVP_PKEY_get_bn_param, (const EVP_PKEY *, const char *name, BIGNUM **))                 \
    F(int, BN_num_bits, (const BIGNUM *))                                                          \
    F(void, BN_free, (BIGNUM *))                                                                   \
    F(void, EVP_PKEY_free, (EVP_PKEY *))                                                           \
    F(const EVP_MD *, EVP_sha256, (void))                                                          \
    F(EVP_CIPHER *, EVP_CIPHER_fetch, (OSSL_LIB_CTX *, const char *name, const char *query))       \
    F(EVP_CIPHER_CTX *, EVP_CIPHER_CTX_new, (void))                                                \
    F(void, EVP_CIPHER_CTX_free, (EVP_CIPHER_CTX *))                                               \
    F(int, EVP_CIPHER_CTX_ctrl, (EVP_CIPHER_CTX *, int type, int number, void *))                  \
    F(int, EVP_CipherInit_ex,                                                                      \
      (EVP_CIPHER_CTX *, const EVP_CIPHER *, ENGINE *, const unsigned char *key,                   \
       const unsigned char *iv, int encrypt))                                                      \
    F(int, EVP_CipherUpdate,                                                                       \
      (EVP_CIPHER_CTX *, unsigned char *to, int *ret_size, const unsigned char *from, int size))   \
    F(int, EVP_CipherFinal_ex, (EVP_CIPHER_CTX *, unsigned char *to, int *ret_size))               \
    F(unsigned char *, EVP_Q_mac,                                                                  \
      (OSSL_LIB_CTX *, const char *name, const char *query, const char *digest,                    \
       const OSSL_PARAM *, const void *key, size_t key_size, const unsigned char *bytes,           \
       size_t size, unsigned char *ret, size_t ret_max, size_t *ret_size))

struct tow_tls_lib {
#define TOW_TLS_FIELD(type, name, arguments) type(*name) arguments;
    TOW_TLS_SSL_FUNCTIONS(TOW_TLS_FIELD)
    TOW_TLS_CRYPTO_FUNCTIONS(TOW_TLS_FIELD)
#undef TOW_TLS_FIELD
    void *ssl_library, *crypto_library; /* as dlopen gave them, never closed */
    OSSL_LIB_CTX *context;              /* ours, for ever */
    EVP_CIPHER *cipher;                 /* AES-128-GCM; ours, for ever */
};

/* The library, opened once in a process; -ENOTSUP with a sentence that says what to install. */
int tow_tls_lib(const struct tow_tls_lib **ret_lib, char *ret_why, size_t size);

#endif
