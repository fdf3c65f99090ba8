package controller

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"dbcontroller/config"
)

// A scratch database is beside the real one, and nothing that is done there is felt
// elsewhere. Names of any length have one, each another.
func TestScratchDatabase(t *testing.T) {
	t.Parallel()
	db, cfg := scratchOf(config.DB{Database: "shop", Disabled: true}, zap.NewNop())
	if db.Database != "shop_dbcrehearsal" || db.Disabled || cfg.Database != db.Database || !cfg.Quiet {
		t.Errorf("%+v, quiet %t", db, cfg.Quiet)
	}
	seen := map[string]bool{}
	for _, end := range []string{"", "x", "y", strings.Repeat("x", 13)} {
		db, _ := scratchOf(config.DB{Database: strings.Repeat("x", 50) + end}, zap.NewNop())
		if len(db.Database) > 63 || !strings.HasSuffix(db.Database, "_dbcrehearsal") || seen[db.Database] {
			t.Errorf("the scratch database is %s", db.Database)
		}
		seen[db.Database] = true
	}
}
