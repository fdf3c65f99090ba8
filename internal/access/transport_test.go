package access_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
)

// until tries something again until it comes to pass.
func until(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-again.C:
		}
	}
}

// TestIssuerWhoseAuthorityIsReplaced: keys are fetched from a server with a certificate of
// another authority, once the file has that.
func TestIssuerWhoseAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	first, second := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	ca := first.File(t, filepath.Join(t.TempDir(), "ca.crt"))
	signer := accesstest.NewTLSIssuer(t, first)
	issuer, err := access.OpenIssuer(access.IssuerConfig{Name: "corp", Issuer: signer.URL, Audience: "dbcontroller", CA: ca}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	proves := func() error {
		_, err := issuer.Authenticate(t.Context(), with("Bearer "+signer.Token(t, "dbcontroller", map[string]any{"sub": "alice"})))
		return err
	}
	if err := proves(); err != nil {
		t.Fatal(err)
	}
	signer.Certify(t, second)
	signer.Rotate(t, "second") // what is signed from now on needs the new key
	if proves() == nil {
		t.Fatal("the key was not fetched, and counts")
	}
	second.File(t, ca)
	until(t, "a token after the authority was replaced", proves)
}

// TestTransportFollowsAuthorities: who is not vouched for any longer gets no request, not even
// on a connection that was made before.
func TestTransportFollowsAuthorities(t *testing.T) {
	t.Parallel()
	first, second := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	ca := first.File(t, filepath.Join(t.TempDir(), "ca.crt"))
	server := accesstest.NewTLSIssuer(t, first)
	logs, seen := observer.New(zap.WarnLevel)
	authorities, err := access.OpenClientAuthorities("authorities", ca, zap.New(logs))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: access.NewTransport(authorities, nil)}
	t.Cleanup(client.CloseIdleConnections)
	ask := func() error {
		res, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	second.File(t, ca)
	until(t, "the server of the former authority", func() error {
		var refused *tls.CertificateVerificationError
		if err := ask(); !errors.As(err, &refused) {
			return errors.New("it is asked still")
		}
		return nil
	})
	server.Certify(t, second)
	if err := ask(); err != nil {
		t.Error(err)
	}
	// A certificate that is written by half leaves the former ones in force; the last one can be revoked.
	accesstest.Replace(t, ca, accesstest.Bundle(second)[:100])
	until(t, "half a certificate is not noticed", func() error {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		if seen.FilterMessageSnippet("stays in force").Len() == 0 {
			return errors.New("the log does not say so")
		}
		return nil
	})
	accesstest.Replace(t, ca, []byte("# nobody\n"))
	until(t, "the last authority was taken out", func() error {
		var refused *tls.CertificateVerificationError
		if err := ask(); !errors.As(err, &refused) {
			return errors.New("its server is asked still")
		}
		return nil
	})
	if seen.FilterMessageSnippet("no authority is left").Len() != 1 {
		t.Errorf("the log has %v", seen.All())
	}
	second.File(t, ca)
	until(t, "the authority is back", ask)
}
