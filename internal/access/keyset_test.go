package access

import (
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access/accesstest"
)

// TestIssuerRemovesAKey: a key that the issuer no longer publishes does not count for ever, although
// nobody brings a token with another key. While the issuer is away its keys stay in force.
func TestIssuerRemovesAKey(t *testing.T) {
	t.Parallel()
	signer := accesstest.NewIssuer(t)
	logs, seen := observer.New(zap.WarnLevel)
	keys := newKeySet(&Issuer{log: zap.New(logs)}, func() oidc.KeySet { return oidc.NewRemoteKeySet(t.Context(), signer.URL+"/keys") })
	proves := func(token string) bool {
		_, err := keys.VerifySignature(t.Context(), token)
		return err == nil
	}
	later := func() { keys.next = time.Now().Add(-time.Second) }
	former := signer.Token(t, "dbcontroller", nil)
	if !proves(former) {
		t.Fatal("a token does not count")
	}
	signer.Rotate(t, "second")
	asked := signer.Asked
	if !proves(former) || signer.Asked != asked {
		t.Error("the keys are fetched for each token")
	}
	signer.Away.Store(true)
	later()
	if !proves(former) || seen.Len() != 1 {
		t.Errorf("while the issuer is away the former key counts no longer, and the log has %v", seen.All())
	}
	if asked = signer.Asked; !proves(former) || signer.Asked != asked {
		t.Error("an issuer that is away is asked for each token")
	}
	signer.Away.Store(false)
	later()
	if proves(former) {
		t.Error("a removed key counts")
	}
	if !proves(signer.Token(t, "dbcontroller", nil)) {
		t.Error("the present key does not count")
	}
	later()
	if !proves(signer.Token(t, "dbcontroller", nil)) || proves(former) {
		t.Error("after another fetch the keys differ")
	}
}
