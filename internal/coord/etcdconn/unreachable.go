package etcdconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

// unreachable describes a failed Open in one line: the endpoints, and gRPC's reason without its
// layers of wrapping.
func unreachable(cfg Config, err error) error {
	at := strings.Join(cfg.Endpoints, ", ")
	known := rpctypes.Error(err)
	switch {
	case errors.Is(known, rpctypes.ErrAuthFailed):
		return fmt.Errorf("open etcd at %s: %w of user %q", at, ErrLogin, cfg.Username)
	case errors.Is(known, rpctypes.ErrUserEmpty):
		return fmt.Errorf("open etcd at %s: %w: it wants a user", at, ErrLogin)
	case errors.Is(err, context.Canceled) || errors.Is(err, ErrDenied) || Refused(err):
		return fmt.Errorf("open etcd at %s: %w", at, err)
	}
	// gRPC hides the cause in nested texts and offers no error to unwrap.
	reason := status.Convert(err).Message()
	if i := strings.LastIndex(reason, `desc = "`); i >= 0 {
		reason = strings.TrimSuffix(reason[i+len(`desc = "`):], `"`)
	}
	reason = strings.ReplaceAll(reason, "transport: authentication handshake failed: ", "")
	if alert := refusedCertificate(cfg); alert != nil && !tlsTrouble(reason) {
		reason = alert.Error()
	}
	if tlsTrouble(reason) {
		return fmt.Errorf("open etcd at %s: %w: %s", at, ErrTLS, reason)
	}
	return fmt.Errorf("open etcd at %s: no answer within %s: %s", at, cfg.DialTimeout, reason)
}

// refusedCertificate connects to the first endpoint by TLS, to learn why it closes connections. In
// TLS 1.3 a server can refuse the client's certificate after the client has finished the handshake.
// gRPC then mostly reports a broken pipe.
func refusedCertificate(cfg Config) error {
	host, secure := strings.CutPrefix(cfg.Endpoints[0], "https://")
	if !secure && cfg.TLS == nil {
		return nil
	}
	how := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		var err error
		if how, err = cfg.TLS(); err != nil {
			return nil
		}
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: alertWait}, "tcp", host, how)
	if err == nil {
		// The server's refusal arrives with the first read, after the handshake.
		defer conn.Close() //nolint:errcheck // nothing was sent
		_ = conn.SetReadDeadline(time.Now().Add(alertWait))
		_, err = conn.Read(make([]byte, 1))
	}
	var alert tls.AlertError
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "remote error" || errors.As(err, &alert) {
		return err
	}
	return nil
}

// alertWait bounds the dial and the wait for a server's reason.
const alertWait = time.Second

// tlsTrouble recognizes a TLS failure by its text, since gRPC passes nothing else on. A TLS server
// closes a plain connection before the HTTP/2 preface. A plain server answers a TLS greeting with
// bytes that are not TLS.
func tlsTrouble(reason string) bool {
	for _, words := range []string{"tls: ", "x509: ", "error reading server preface"} {
		if strings.Contains(reason, words) {
			return true
		}
	}
	return false
}
