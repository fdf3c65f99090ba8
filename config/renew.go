package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Renewed is the entry with its endpoint as the files that it names, by $(file:), hold it
// now. One that names other hosts or options by now is refused, for that is another place:
// only who logs in may change while a process runs. A process that started with an entry
// asks again and again, and connects anew when Login says something else than before.
func (d DB) Renewed() (DB, error) {
	if d.Renew == nil {
		return d, nil
	}
	uri, err := d.Renew()
	if err != nil {
		return d, fmt.Errorf("mongo.endpoint: %w", err)
	}
	scheme, hosts := hostsOf(uri)
	before, were := hostsOf(d.Endpoint.Reveal())
	if scheme != before || !slices.Equal(hosts, were) || Redact(uri) != Redact(d.Endpoint.Reveal()) {
		return d, errors.New("mongo.endpoint: it names other hosts or options than when this process started: start it anew")
	}
	d.Endpoint = NewSecret(uri)
	return d, nil
}

// HasFiles reports whether the endpoint names files, by which the login may change.
func (d DB) HasFiles() bool { return d.Renew != nil || len(certificatesOf(d.Endpoint.Reveal())) > 0 }

// Login is a digest of all that a login takes: the endpoint, and what the files of
// certificates hold that it names.
func (d DB) Login() (digest [sha256.Size]byte, err error) {
	sum := sha256.New()
	uri := d.Endpoint.Reveal()
	_, _ = io.WriteString(sum, uri) // cannot fail
	for _, path := range certificatesOf(uri) {
		text, err := os.ReadFile(path) //nolint:gosec // the operator names it
		if err != nil {
			return digest, fmt.Errorf("mongo.endpoint: %w", err)
		}
		fmt.Fprintf(sum, "\n%d\n%s", len(text), text)
	}
	return [sha256.Size]byte(sum.Sum(nil)), nil
}

// certificateOptions are the options of a connection string that name files, in lower case.
var certificateOptions = []string{
	"tlscafile", "sslcertificateauthorityfile", "tlscertificatekeyfile", "sslclientcertificatekeyfile", "tlscertificatefile", "tlsprivatekeyfile",
}

// certificatesOf are the files that options of a connection string name.
func certificatesOf(uri string) (paths []string) {
	_, list, _ := strings.Cut(uri, "?")
	for option := range strings.SplitSeq(list, "&") {
		name, value, _ := strings.Cut(option, "=")
		if path, err := url.QueryUnescape(value); err == nil && slices.Contains(certificateOptions, strings.ToLower(name)) {
			paths = append(paths, path)
		}
	}
	return paths
}
