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

// unreachable reports where, and why as far as gRPC reports it, without its layers of
// wrapping.
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

// refusedCertificate asks an endpoint with TLS why it closes connections. In TLS 1.3 a
// server refuses the client's certificate when the client takes the handshake for done, and
// gRPC mostly reports a broken pipe then.
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

// alertWait bounds the wait for a server's reason.
const alertWait = time.Second

// tlsTrouble knows a refusal of TLS by its words: gRPC passes nothing else on. A server
// that speaks TLS closes a plain connection before its HTTP/2 preface, a plain one answers
// a TLS greeting by something that is none.
func tlsTrouble(reason string) bool {
	for _, words := range []string{"tls: ", "x509: ", "error reading server preface"} {
		if strings.Contains(reason, words) {
			return true
		}
	}
	return false
}
