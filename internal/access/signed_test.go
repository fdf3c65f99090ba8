package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
)

// TestSignedUntil: a certificate that was verified once does not count longer than its chain.
func TestSignedUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		authority := accesstest.NewAuthority(t) // for an hour
		clients, err := access.OpenClientAuthorities("authorities", authority.File(t, filepath.Join(t.TempDir(), "ca.crt")), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		leaf := authority.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "alice"}}).Leaf // for half an hour longer
		r := with("")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
		for _, want := range []bool{true, true, false} {
			if _, err := (access.Certificates{Authorities: clients}).Authenticate(t.Context(), r); (err == nil) != want {
				t.Errorf("after %s: %v", time.Since(leaf.NotBefore.Add(time.Hour)), err)
			}
			time.Sleep(20 * time.Minute)
		}
	})
}
