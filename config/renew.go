package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/watchedfile"
)

// Renewed is the entry with its endpoint as the files that it names, by $(file:), hold it
// now. One that names other hosts or options by now is refused, for that is another place:
// only who logs in may change while a process runs.
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

// WatchLogin watches what a login takes: the files that the endpoint names by $(file:), and
// those of certificates. The entry that it has is another one when they say something else; a
// process then connects anew.
func (d DB) WatchLogin(log *zap.Logger) (*watchedfile.Value[*DB], error) {
	return watchedfile.Open(endpointKey+" of "+d.Version, log, d.renewed, d.loginFiles()...)
}

// HasFiles reports whether the endpoint names files, by which the login may change.
func (d DB) HasFiles() bool { return len(d.loginFiles()) > 0 }

const endpointKey = "mongo.endpoint"

// loginFiles are those of secrets, in the order in which Renew reads them, and then those of
// certificates, which the driver reads.
func (d DB) loginFiles() (files []watchedfile.File) {
	if d.Renew != nil {
		_, _ = d.Renew(func(path string) (string, error) { // an error is that of renewed
			files = append(files, watchedfile.Secret(path))
			return "", nil
		})
	}
	return append(files, certificatesOf(d.Endpoint.Reveal())...)
}

func (d DB) renewed(texts [][]byte) (*DB, error) {
	if d.Renew == nil {
		return &d, nil
	}
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
	if scheme != before || !slices.Equal(hosts, were) || Redact(uri) != Redact(d.Endpoint.Reveal()) {
		return nil, errors.New("it names other hosts or options than when this process started: start it anew")
	}
	d.Endpoint = NewSecret(uri)
	return &d, nil
}

// certificateOptions are the options of a connection string that name files, in lower case,
// and whether they hold or decide what others must not write.
var certificateOptions = map[string]func(path string) watchedfile.File{
	"tlscafile": watchedfile.Secret, "sslcertificateauthorityfile": watchedfile.Secret,
	"tlscertificatekeyfile": watchedfile.Secret, "sslclientcertificatekeyfile": watchedfile.Secret,
	"tlscertificatefile": watchedfile.Public, "tlsprivatekeyfile": watchedfile.Secret,
}

// certificatesOf are the files that options of a connection string name.
func certificatesOf(uri string) (files []watchedfile.File) {
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
