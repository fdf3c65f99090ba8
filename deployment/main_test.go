package deployment_test

import (
	"testing"

	"go.uber.org/goleak"

	"dbcontroller/deployment/deploymenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = deploymenttest.Name

type world = deploymenttest.World

const dir = deploymenttest.Direction

var (
	parked = deploymenttest.Parked
	once   = deploymenttest.Once
	server = deploymenttest.Server
	setup  = deploymenttest.New
	key    = deploymenttest.Key
	put    = deploymenttest.Put
	lock   = deploymenttest.Lock
	lease  = deploymenttest.Lease
)
