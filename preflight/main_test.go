package preflight

import (
	"testing"

	"dbcontroller/integration/localmongo/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }
