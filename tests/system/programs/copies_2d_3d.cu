/* SPDX-License-Identifier: Apache-2.0 */
// Rectangles and boxes: pitched memory, arrays, sub-ranges, memsets. What lies outside must stay.
#include "check.h"

static uint8_t at(int x, int y, int z)
{
    return uint8_t(x * 7 + y * 31 + z * 101 + 1);
}

static void rectangles()
{
    const int W = 123, H = 57; // bytes and rows
    std::vector<uint8_t> host(W * H), back(W * H);
    for (int i = 0; i < W * H; i++) {
        host[i] = at(i % W, i / W, 0);
    }
    uint8_t *device, *other;
    size_t pitch, other_pitch;
    CHECK(cudaMallocPitch(&device, &pitch, W, H));
    CHECK(cudaMallocPitch(&other, &other_pitch, W + 50, H));
    EXPECT(pitch >= W && pitch % 32 == 0);
    CHECK(cudaMemset2D(device, pitch, 0xee, W, H));
    CHECK(cudaMemcpy2D(device, pitch, host.data(), W, W, H, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D(back.data(), W, device, pitch, W, H, cudaMemcpyDeviceToHost));
    EXPECT(back == host);

    // A part of it, through the other buffer, at odd places.
    CHECK(cudaMemset(other, 0x55, other_pitch * H));
    CHECK(cudaMemcpy2D(other + 3 * other_pitch + 11, other_pitch, device + 5 * pitch + 7, pitch, 64,
                       20, cudaMemcpyDeviceToDevice));
    std::vector<uint8_t> part(other_pitch * H);
    CHECK(cudaMemcpy(part.data(), other, part.size(), cudaMemcpyDeviceToHost));
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < int(other_pitch); x++) {
            bool inside = y >= 3 && y < 23 && x >= 11 && x < 75;
            EXPECT(part[y * other_pitch + x] == (inside ? at(x - 11 + 7, y - 3 + 5, 0) : 0x55));
        }
    }
    CHECK(cudaMemset2D(device + 2 * pitch + 1, pitch, 0x99, 10, 3));
    CHECK(cudaMemcpy2DAsync(back.data(), W, device, pitch, W, H, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    for (int i = 0; i < W * H; i++) {
        int x = i % W, y = i / W;
        bool inside = y >= 2 && y < 5 && x >= 1 && x < 11;
        EXPECT(back[i] == (inside ? 0x99 : host[i]));
    }
    CHECK(cudaMemcpy2D(device, pitch, host.data(), W, 0, H, cudaMemcpyHostToDevice)); // nothing
    EXPECT_ERROR(cudaMemcpy2D(device, pitch, host.data(), W - 1, W, H, cudaMemcpyHostToDevice),
                 cudaErrorInvalidPitchValue);
    cudaGetLastError();
    CHECK(cudaFree(device));
    CHECK(cudaFree(other));
}

static void arrays()
{
    const int W = 40, H = 30;
    std::vector<float> host(W * H), back(W * H);
    for (int i = 0; i < W * H; i++) {
        host[i] = i * 0.5f;
    }
    cudaArray_t array, second;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, W, H));
    CHECK(cudaMallocArray(&second, &format, W, H));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, host.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DArrayToArray(second, 0, 0, array, 0, 0, W * 4, H, cudaMemcpyDeviceToDevice));
    CHECK(
        cudaMemcpy2DFromArray(back.data(), W * 4, second, 0, 0, W * 4, H, cudaMemcpyDeviceToHost));
    EXPECT(back == host);
    // A rectangle of 5 x 4 at (3, 2), overwritten.
    std::vector<float> piece(20, -1.0f);
    CHECK(cudaMemcpy2DToArray(second, 3 * 4, 2, piece.data(), 20, 20, 4, cudaMemcpyHostToDevice));
    CHECK(
        cudaMemcpy2DFromArray(back.data(), W * 4, second, 0, 0, W * 4, H, cudaMemcpyDeviceToHost));
    for (int i = 0; i < W * H; i++) {
        bool inside = i % W >= 3 && i % W < 8 && i / W >= 2 && i / W < 6;
        EXPECT(back[i] == (inside ? -1.0f : host[i]));
    }
    cudaChannelFormatDesc got;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&got, &extent, &flags, array));
    EXPECT(got.x == 32 && got.y == 0 && got.f == cudaChannelFormatKindFloat);
    EXPECT(extent.width == W && extent.height == H && extent.depth == 0);
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(second));
}

static void boxes()
{
    const int W = 21, H = 13, D = 9;
    std::vector<uint8_t> host(W * H * D), back(W * H * D);
    for (int z = 0; z < D; z++) {
        for (int y = 0; y < H; y++) {
            for (int x = 0; x < W; x++) {
                host[(z * H + y) * W + x] = at(x, y, z);
            }
        }
    }
    cudaPitchedPtr device;
    CHECK(cudaMalloc3D(&device, make_cudaExtent(W, H, D)));
    EXPECT(device.pitch >= W && device.xsize == W && device.ysize == H);
    CHECK(cudaMemset3D(device, 0x33, make_cudaExtent(W, H, D)));

    cudaMemcpy3DParms up = {};
    up.srcPtr = make_cudaPitchedPtr(host.data(), W, W, H);
    up.dstPtr = device;
    up.srcPos = make_cudaPos(2, 1, 3);
    up.dstPos = make_cudaPos(4, 5, 1);
    up.extent = make_cudaExtent(11, 7, 5);
    up.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&up));
    cudaMemcpy3DParms down = {};
    down.srcPtr = device;
    down.dstPtr = make_cudaPitchedPtr(back.data(), W, W, H);
    down.extent = make_cudaExtent(W, H, D);
    down.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3DAsync(&down, 0));
    CHECK(cudaStreamSynchronize(0));
    for (int z = 0; z < D; z++) {
        for (int y = 0; y < H; y++) {
            for (int x = 0; x < W; x++) {
                bool inside = x >= 4 && x < 15 && y >= 5 && y < 12 && z >= 1 && z < 6;
                EXPECT(back[(z * H + y) * W + x] == (inside ? at(x - 2, y - 4, z + 2) : 0x33));
            }
        }
    }
    // Through a 3D array of 16-bit elements.
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned short>();
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(10, H, D)));
    cudaMemcpy3DParms in = {};
    in.srcPtr = make_cudaPitchedPtr(host.data(), W, W, H);
    in.dstArray = array;
    in.extent = make_cudaExtent(10, H, D); // in elements, since an array takes part
    in.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&in));
    cudaMemcpy3DParms out = {};
    out.srcArray = array;
    out.srcPos = make_cudaPos(1, 2, 3);
    out.dstPtr = make_cudaPitchedPtr(back.data(), W, W, H);
    out.extent = make_cudaExtent(4, 5, 6);
    out.kind = cudaMemcpyDeviceToHost;
    std::fill(back.begin(), back.end(), uint8_t(0));
    CHECK(cudaMemcpy3D(&out));
    for (int z = 0; z < D; z++) {
        for (int y = 0; y < H; y++) {
            for (int x = 0; x < W; x++) {
                bool inside = x < 8 && y < 5 && z < 6;
                EXPECT(back[(z * H + y) * W + x] == (inside ? at(x + 2, y + 2, z + 3) : 0));
            }
        }
    }
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(device.ptr));
}

int main()
{
    rectangles();
    puts("2D: right");
    arrays();
    puts("arrays: right");
    boxes();
    puts("3D: right");
    return finish();
}
