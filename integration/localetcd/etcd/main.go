// Command etcd runs a single etcd member as a process for tests. It prints its client URL, and ends
// when its standard input closes. It thus ends with its parent, however that ends.
//
// It is not for users and may change with any version.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run() error {
	cfg := embed.NewConfig()
	flag.StringVar(&cfg.Dir, "data-dir", "", "folder of the data")
	flag.UintVar(&cfg.MaxTxnOps, "max-txn-ops", cfg.MaxTxnOps, "operations of a transaction")
	flag.UintVar(&cfg.MaxRequestBytes, "max-request-bytes", cfg.MaxRequestBytes, "bytes of a request")
	flag.Parse()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	at := url.URL{Scheme: "http", Host: l.Addr().String()}
	if err := l.Close(); err != nil { // etcd binds the port next
		return err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls, cfg.ListenPeerUrls = []url.URL{at}, []url.URL{at}, nil
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true              // the data are not needed after the test
	cfg.BcryptCost = uint(bcrypt.MinCost) // etcd's default takes 60 ms of a processor for each user and login
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	<-server.Server.ReadyNotify()
	// The parent waits for this line, so it must come after etcd is ready.
	fmt.Println(at.String())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
