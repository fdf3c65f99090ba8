package controller

import "testing"

// TestScratchOf: a scratch database is next to the real one, and kept in sync although that
// one is disabled.
func TestScratchOf(t *testing.T) {
	t.Parallel()
	if db := scratchOf(Database{Name: "shop", Disabled: true}); db.Name != "shop_dbcrehearsal" || db.Disabled {
		t.Errorf("%+v", db)
	}
}
