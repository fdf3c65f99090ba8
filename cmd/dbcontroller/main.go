// Command dbcontroller moves a live service's database from one version to the next. It is both the
// controller process and the operator's commands.
package main

import (
	// Certificate authorities where the system has none, as in a container from scratch.
	_ "golang.org/x/crypto/x509roots/fallback"

	"dbcontroller.dev/cmd/dbcontroller/cli"
	"dbcontroller.dev/coord/embedetcd"
)

func main() { cli.Program{Etcd: embedetcd.Host}.Main() }
