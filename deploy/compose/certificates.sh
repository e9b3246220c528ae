#!/bin/sh
# Makes a CA in a folder, and with it the certificate that routers and shards show one another, unless they are there:
#   sh certificates.sh FOLDER
# Copy ca.crt, tls.crt and tls.key to every machine; ca.key makes more, and belongs to none of them. Without it there
# is a new CA.
set -eu
umask 077
mkdir -p "$1"
cd "$1"
test ! -e tls.crt || exit 0
curve="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
test -e ca.key || openssl req -x509 $curve -days 3650 -subj "/CN=Penstock's shards" -keyout ca.key -out ca.crt
openssl req -new $curve -subj /CN=penstock-shard -addext subjectAltName=DNS:penstock-shard -keyout tls.key -out tls.csr
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -copy_extensions copy -out tls.crt.new
rm tls.csr
mv tls.crt.new tls.crt
