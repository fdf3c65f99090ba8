package access

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"
)

const (
	// keysAge is the time after which the keys of an issuer are fetched again, although they are
	// enough for all tokens. Otherwise a key that the issuer removed, such as a leaked one, would
	// count until a token with an unknown key arrives.
	keysAge = 5 * time.Minute
	// keysRetry is the pause after such a fetch failed.
	keysRetry = time.Minute
)

// keySet holds the keys of an issuer. It bounds the number of calls that wait for fetched keys. A token
// with a known key is never refused because others wait.
type keySet struct {
	issuer *Issuer
	empty  func() oidc.KeySet // returns a set that fetches its keys at the first use

	mu   sync.Mutex
	keys oidc.KeySet
	next time.Time // of the next fetch
}

func newKeySet(i *Issuer, empty func() oidc.KeySet) *keySet {
	return &keySet{issuer: i, empty: empty, keys: empty(), next: time.Now().Add(keysAge)}
}

// crowdedKey holds a *bool that becomes true if too many calls wait. The library drops the error,
// so the caller learns it from this flag.
type crowdedKey struct{}

// VerifySignature tries the known keys first. That also starts a fetch, which continues on its own.
func (k *keySet) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	keys := k.present(ctx, jwt)
	// A canceled context makes the library check the keys it has without waiting.
	now, cancel := context.WithCancel(ctx)
	cancel()
	payload, err := keys.VerifySignature(now, jwt)
	if !errors.Is(err, context.Canceled) {
		return payload, err
	}
	if !k.issuer.wait(1) {
		if crowded, ok := ctx.Value(crowdedKey{}).(*bool); ok {
			*crowded = true
		}
		return nil, errManyWait
	}
	defer k.issuer.wait(-1)
	return keys.VerifySignature(ctx, jwt)
}

// present returns the keys. If they are old, it fetches them again first. Only one caller waits for
// that; the others use the former keys meanwhile. Without an answer all use the former keys, because
// an issuer that is away must not lock out its users.
func (k *keySet) present(ctx context.Context, jwt string) oidc.KeySet {
	k.mu.Lock()
	keys, old := k.keys, time.Now().After(k.next)
	if old {
		k.next = time.Now().Add(keysRetry)
	}
	k.mu.Unlock()
	if !old {
		return keys
	}
	fetched := k.empty()
	// The set fetches its keys for a token that it cannot verify yet.
	if _, err := fetched.VerifySignature(ctx, jwt); err != nil && err.Error() != errNotSigned {
		k.issuer.log.Warn("the keys of an issuer cannot be fetched again: the former ones stay in force", zap.String("issuer", k.issuer.cfg.Name), zap.Error(err))
		return keys
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.next = fetched, time.Now().Add(keysAge)
	return fetched
}

// errNotSigned is the library's error for a token that none of the fetched keys signed. It has no type.
const errNotSigned = "failed to verify id token signature"
