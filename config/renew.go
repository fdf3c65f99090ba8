package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/watchedfile"
)

// Renewed returns the entry with its endpoint made from the current contents of its $(file:) files.
// Only the login may change while a process runs. An endpoint with other hosts or options is
// another place, and thus an error.
func (d DB) Renewed() (DB, error) {
	texts, err := watchedfile.Read(endpointKey, d.loginFiles()...)
	if err != nil {
		return d, err
	}
	now, err := d.renewed(texts)
	if err != nil {
		return d, fmt.Errorf("%s: %w", endpointKey, err)
	}
	return *now, nil
}

// WatchLogin watches the files of a login: the $(file:) files of the endpoint, and certificates.
// After each change the value is a new entry, with which the process connects again.
func (d DB) WatchLogin(log *zap.Logger) (*watchedfile.Value[*DB], error) {
	return watchedfile.Open(endpointKey+" of "+d.Version, log, d.renewed, d.loginFiles()...)
}

// HasFiles reports whether the endpoint names files, so that the login may change.
func (d DB) HasFiles() bool { return len(d.loginFiles()) > 0 }

const endpointKey = "mongo.endpoint"

// loginFiles returns the files of secrets, in the order in which Renew reads them, and then the
// certificates, which the driver reads.
func (d DB) loginFiles() (files []watchedfile.File) {
	if d.Renew != nil {
		_, _ = d.Renew(func(path string) (string, error) { // renewed reports the error
			files = append(files, watchedfile.Secret(path))
			return "", nil
		})
	}
	return append(files, certificatesOf(d.Endpoint.Reveal())...)
}

func (d DB) renewed(texts [][]byte) (*DB, error) {
	// The endpoint names no files, so at most a certificate has changed.
	if d.Renew == nil {
		d.Certificates = digestOf(texts)
		return &d, nil
	}
	// The files arrive in the order of loginFiles.
	uri, err := d.Renew(func(string) (string, error) {
		text := texts[0]
		texts = texts[1:]
		return bare(text), nil
	})
	if err != nil {
		return nil, err
	}
	scheme, hosts := hostsOf(uri)
	before, were := hostsOf(d.Endpoint.Reveal())
	// The redacted form contains everything but the login.
	if scheme != before || !slices.Equal(hosts, were) || Redact(uri) != Redact(d.Endpoint.Reveal()) {
		return nil, errors.New("it names other hosts or options than when this process started: start it anew")
	}
	d.Endpoint, d.Certificates = NewSecret(uri), digestOf(texts) // the rest of texts
	return &d, nil
}

// digestOf returns DB.Certificates. It is "" without certificates.
func digestOf(certificates [][]byte) string {
	if len(certificates) == 0 {
		return ""
	}
	digest := watchedfile.Digest(certificates)
	return hex.EncodeToString(digest[:])
}

// certificateOptions are the options of a connection string that name files, in lower case. Secret
// files must be protected from other users; public ones need not be.
var certificateOptions = map[string]func(path string) watchedfile.File{
	"tlscafile": watchedfile.Secret, "sslcertificateauthorityfile": watchedfile.Secret,
	"tlscertificatekeyfile": watchedfile.Secret, "sslclientcertificatekeyfile": watchedfile.Secret,
	"tlscertificatefile": watchedfile.Public, "tlsprivatekeyfile": watchedfile.Secret,
}

// certificatesOf returns the files that the options of a connection string name.
func certificatesOf(uri string) (files []watchedfile.File) {
	// The driver reads these files when it connects, so a change needs a new connection.
	_, list, _ := strings.Cut(uri, "?")
	for option := range strings.SplitSeq(list, "&") {
		name, value, _ := strings.Cut(option, "=")
		file, ok := certificateOptions[strings.ToLower(name)]
		if path, err := url.QueryUnescape(value); ok && err == nil {
			files = append(files, file(path))
		}
	}
	return files
}
