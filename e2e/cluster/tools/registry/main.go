// Command registry serves images and charts from a folder, for tests: plain HTTP, no accounts.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen; port 0 takes a free one")
	folder := flag.String("folder", "", "where blobs are kept; empty: in memory")
	flag.Parse()
	options := []registry.Option{registry.Logger(log.New(os.Stderr, "", log.LstdFlags))}
	if *folder != "" {
		options = append(options, registry.WithBlobHandler(registry.NewDiskBlobHandler(*folder)))
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	// The first line of the output is how a test learns the port.
	fmt.Println(listener.Addr())
	handler := registry.New(options...)
	if *folder != "" {
		handler = uploads(*folder, handler)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(listener))
}
