package proxy

import (
	"testing"

	"dbcontroller.dev/integration/localmongo/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }
