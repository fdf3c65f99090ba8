package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Bounds of a call, in bytes.
const (
	maxURL    = 2048
	maxHeader = 16 << 10
	maxAnswer = 64 << 10
)

// URLError returns the reason why the service does not call a URL, or nil. It never quotes the URL.
func URLError(text string) error {
	if len(text) > maxURL {
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("has no host")
	}
	return nil
}

// client has a transport of its own, because its limits must not apply to the rest of the process.
var client = &http.Client{
	Transport: &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader, ForceAttemptHTTP2: true},
	// A redirect would send the body to an address that nobody has checked.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// AnswerError is the error of a post that was answered, but not with 2xx.
type AnswerError struct{ Status int }

func (e *AnswerError) Error() string { return fmt.Sprintf("answered %d", e.Status) }

// Post posts a body, JSON or none, to an address. It returns nil only for an answer 2xx, and an
// AnswerError for any other.
func Post(ctx context.Context, address string, body []byte, timeout time.Duration) error {
	// The database may hold an older address, or that of another program.
	if err := URLError(address); err != nil {
		return fmt.Errorf("the address %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address is no URL")
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		var refused *url.Error
		// The text of url.Error has the address.
		if errors.As(err, &refused) {
			err = refused.Err
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	// The server sees its answer taken. What exceeds the bound is not read.
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)); err != nil {
		return err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return &AnswerError{res.StatusCode}
	}
	return nil
}
