package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSign: the checksums of a release are signed so that another key, another text and a signature
// for another purpose do not count.
func TestSign(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		return string(out), err
	}
	write := func(name, text string) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"key", "other"} {
		if out, err := run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", at(key)); err != nil {
			t.Fatal(out)
		}
		public, err := os.ReadFile(at(key + ".pub"))
		if err != nil {
			t.Fatal(err)
		}
		write(key+".signers", "releases@dbcontroller "+string(public))
	}
	write("SHA256SUMS", "00  dbcontroller.tar.gz\n")
	for range 2 { // the second one replaces the first
		if out, err := run("../sign", at("key"), at("SHA256SUMS")); err != nil {
			t.Fatal(out)
		}
	}
	verify := func(signers string) (string, error) { return run("../sign", "--verify", at(signers), at("SHA256SUMS")) }
	if out, err := verify("key.signers"); err != nil {
		t.Error(out)
	}
	refused := func(what, signers string) {
		if out, err := verify(signers); err == nil || !strings.Contains(out, "do not use") {
			t.Errorf("%s counts: %s", what, out)
		}
	}
	refused("another key", "other.signers")
	write("SHA256SUMS", "01  dbcontroller.tar.gz\n")
	refused("another text", "key.signers")
	if err := os.Remove(at("SHA256SUMS.sig")); err != nil {
		t.Fatal(err)
	}
	if out, err := run("ssh-keygen", "-Y", "sign", "-q", "-f", at("key"), "-n", "file", at("SHA256SUMS")); err != nil {
		t.Fatal(out)
	}
	refused("another purpose", "key.signers")
	if out, err := run("../sign", at("none"), at("SHA256SUMS")); err == nil || !strings.HasPrefix(out, "sign: there is no file") {
		t.Errorf("without the key: %v, %s", err, out)
	}
}
