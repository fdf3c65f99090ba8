package hooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// webhook sends events to an address according to the Standard Webhooks specification: with an id,
// a time, and a signature over both and the body.
type webhook struct {
	url    string
	secret []byte // empty: unsigned
	client *http.Client
}

// Bounds of the answer that a webhook reads, in bytes.
const (
	maxHeader = 16 << 10
	maxAnswer = 64 << 10
)

// NewWebhook returns a Sender of POST requests. The address may hold a secret, so errors never
// quote it. With a secret, requests are signed. A secret with the prefix whsec_ is base64 after the
// prefix; NewWebhook returns an error if it is not.
func NewWebhook(address, secret string) (Sender, error) {
	w := &webhook{url: address, secret: []byte(secret)}
	if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) == 0 {
			return nil, errors.New("want base64 after whsec_")
		}
		w.secret = key
	}
	// A transport of its own, because its limits must not apply to the rest of the process.
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true // events are rare
	t.MaxResponseHeaderBytes = maxHeader
	// Do not follow redirects: the event is for the configured address only.
	w.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return w, nil
}

func (w *webhook) Send(ctx context.Context, e Event, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address is not valid") // the error quotes the address, which may hold a secret
	}
	// The time is part of the signature, so that a receiver can refuse replayed requests.
	at := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "dbcontroller")
	req.Header.Set("Webhook-Id", e.ID)
	req.Header.Set("Webhook-Timestamp", at)
	if len(w.secret) > 0 {
		req.Header.Set("Webhook-Signature", sign(w.secret, e.ID, at, body))
	}
	res, err := w.client.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the address
		}
		return err
	}
	defer res.Body.Close()                                          //nolint:errcheck // only read
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // only the status counts
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("it answers with status %d", res.StatusCode)
	}
	return nil
}

// sign returns the signature of Standard Webhooks: HMAC-SHA256 of id.timestamp.body.
func sign(secret []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.", id, at)
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
