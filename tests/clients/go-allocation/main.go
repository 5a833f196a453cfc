// A matchmaker on grpc-go: it asks the allocator service for game servers with a client certificate, as matchmakers do
// that were written for this protocol, and prints each answer as a line of JSON.
//
//	matchmaker DESCRIPTORS ADDRESS NAME FOLDER REQUEST...
//
// There is no generated code: messages are made from the descriptors in a file. NAME is whom the server's certificate is
// for, FOLDER has tls.crt and tls.key of the client and ca.crt of the server, REQUEST is an AllocationRequest in JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const callLimit = 120 * time.Second

func main() {
	if len(os.Args) < 6 {
		log.Fatal("usage: matchmaker DESCRIPTORS ADDRESS NAME FOLDER REQUEST...")
	}
	method, err := describe(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	transport, err := secure(os.Args[3], os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	connection, err := grpc.NewClient(os.Args[2], grpc.WithTransportCredentials(transport))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	for _, text := range os.Args[5:] {
		line, err := allocate(connection, method, text)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(line)
	}
}

func describe(path string) (protoreflect.MethodDescriptor, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(bytes, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	found, err := files.FindDescriptorByName("allocation.AllocationService")
	if err != nil {
		return nil, err
	}
	service, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no service", found.FullName())
	}
	return service.Methods().ByName("Allocate"), nil
}

func secure(name, folder string) (credentials.TransportCredentials, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no authority in %s", folder)
	}
	config := &tls.Config{ServerName: name, Certificates: []tls.Certificate{pair}, RootCAs: roots}
	return credentials.NewTLS(config), nil
}

// The answer, or what the service says instead: both are answers.
func allocate(connection *grpc.ClientConn, method protoreflect.MethodDescriptor, text string) (string, error) {
	request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	if err := protojson.Unmarshal([]byte(text), request); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	if err := connection.Invoke(ctx, path, request, response); err != nil {
		return fmt.Sprintf(`{"code":%q}`, status.Code(err)), nil
	}
	line, err := protojson.Marshal(response)
	return string(line), err
}
