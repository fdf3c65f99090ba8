package syncer

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestTokensOfAppliers: an applier's token of a kind that keeps its name names the fence, so that
// the next seal ends it.
func TestTokensOfAppliers(t *testing.T) {
	t.Parallel()
	d := us.New("services/a/deployments/x", "v1", 2)
	d.Namespaces = []us.Namespace{{Version: "v2", Kinds: []us.Kind{
		{Kind: "orders", Physical: "orders", ID: "1", Fixed: true, Fence: "validator", Fenced: "orders.n3"},
		{Kind: "accounts", Physical: "accounts.n4", ID: "2", Fence: "uuid", Fenced: "accounts.n4"},
	}}}
	toks := applierTokens(d, "v2")
	if toks["orders"].Mark != "orders.n3" || toks["accounts"].Mark != "" || Tokens(d, "v2")["orders"].Mark != "" {
		t.Errorf("tokens %+v", toks)
	}
}
