// Command dbcontroller moves a live service's database from one version to the next. It is both the
// controller process and the operator's commands.
package main

import (
	// Certificate authorities where the system has none, as in a container from scratch.
	_ "golang.org/x/crypto/x509roots/fallback"

	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
)

func main() { cli.Program{Etcd: embedetcd.Host}.Main() }
