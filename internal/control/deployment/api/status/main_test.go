package status_test

import (
	"testing"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = deploymenttest.Name
